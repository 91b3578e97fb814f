//! zstd streams: several consecutive frames, possibly with skippable frames between them, as in `zstd:chunked`.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The first bytes of a frame.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Decompresses all frames of a stream.
pub(super) struct ZstdFrames<R: BufRead> {
    decoder: Option<Box<StreamingDecoder<R, FrameDecoder>>>,
    source: Option<R>,
}

impl<R: BufRead> ZstdFrames<R> {
    /// Begins at the first frame.
    pub(super) fn new(source: R) -> Self {
        Self {
            decoder: None,
            source: Some(source),
        }
    }

    /// Starts the next frame; false at the end of the stream.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let Some(mut source) = self.source.take() else {
            return Ok(false);
        };
        loop {
            let begin = source.fill_buf()?;
            // Zeros pad the last block.
            if matches!(begin, [] | [0, ..]) {
                return Ok(false);
            }
            // A skippable frame: 0x184D2A50 to 0x184D2A5F, then its length.
            if let [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] = begin {
                let mut head = [0; 8];
                source.read_exact(&mut head)?;
                let [.., a, b, c, d] = head;
                let length = u32::from_le_bytes([a, b, c, d]);
                io::copy(&mut source.by_ref().take(length.into()), &mut io::sink())?;
                continue;
            }
            let decoder = StreamingDecoder::new(source).map_err(io::Error::other)?;
            self.decoder = Some(Box::new(decoder));
            return Ok(true);
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.source = self.decoder.take().map(|decoder| decoder.into_inner());
            }
            if !self.begin_frame()? {
                return Ok(0);
            }
        }
    }
}
