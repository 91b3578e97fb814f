//! Disks in memory that record each request with the moments at which it came and was answered, and what a power cut
//! may leave of them.
//!
//! A guest reaches them by the NBD protocol. One clock stamps the requests of all disks of a guest, so that their order
//! is known across disks. A request is answered after a latency; what comes meanwhile is under way together with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a disk takes for what it was asked to do.
const LATENCY: Duration = Duration::from_micros(200);

const GREETING: &[u8; 8] = b"NBDMAGIC";
const OLD_STYLE: u64 = 0x0000_4202_8186_1253;
/// The disk has a volatile cache: it knows flushes and writes that go through.
const FLAGS: u32 = 1 | 1 << 2 | 1 << 3;
const REPLY: u32 = 0x6744_6698;
const FUA: u16 = 1;

/// What a disk was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `through`: past the cache.
    Write {
        offset: u64,
        data: Vec<u8>,
        through: bool,
    },
    Flush,
}

/// One request, and when it came and was answered.
#[derive(Debug, Clone)]
pub struct Request {
    pub disk: usize,
    pub kind: Kind,
    pub came: usize,
    pub answered: usize,
}

#[derive(Default)]
struct Shared {
    clock: usize,
    requests: Vec<Request>,
}

/// Records what is asked of its disks.
#[derive(Default)]
pub struct Recorder {
    shared: Arc<Mutex<Shared>>,
    disks: Vec<JoinHandle<()>>,
}

impl Recorder {
    /// One more disk with this content, for the guest that connects to the socket. The file stays as it is.
    pub fn serve(&mut self, content: &Path, socket: &Path) {
        let content = fs::read(content).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        let (shared, disk) = (Arc::clone(&self.shared), self.disks.len());
        self.disks.push(std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            Disk {
                disk,
                content,
                shared,
                stream,
            }
            .serve();
        }));
    }

    /// All requests, when the guest has ended.
    pub fn end(self) -> Recording {
        for disk in self.disks {
            disk.join().unwrap();
        }
        let shared = std::mem::take(&mut *self.shared.lock().unwrap());
        Recording {
            requests: shared.requests,
        }
    }
}

/// What is to be done, as the protocol has it.
struct Asked {
    kind: u16,
    flags: u16,
    cookie: [u8; 8],
    offset: u64,
    length: usize,
    data: Vec<u8>,
    /// Where it is recorded, if it changes something.
    recorded: Option<usize>,
}

struct Disk {
    disk: usize,
    content: Vec<u8>,
    shared: Arc<Mutex<Shared>>,
    stream: UnixStream,
}

impl Disk {
    fn serve(mut self) {
        let mut greeting = GREETING.to_vec();
        greeting.extend(OLD_STYLE.to_be_bytes());
        greeting.extend((self.content.len() as u64).to_be_bytes());
        greeting.extend(FLAGS.to_be_bytes());
        greeting.extend([0; 124]);
        self.stream.write_all(&greeting).unwrap();
        let (sender, asked) = channel();
        let (stream, shared) = (self.stream.try_clone().unwrap(), Arc::clone(&self.shared));
        let disk = self.disk;
        let reader = std::thread::spawn(move || read_requests(disk, stream, &shared, &sender));
        self.answer_all(&asked);
        reader.join().unwrap();
    }

    fn answer_all(&mut self, asked: &Receiver<Asked>) {
        while let Ok(first) = asked.recv() {
            let mut together = vec![first];
            while let Ok(more) = asked.recv_timeout(LATENCY) {
                together.push(more);
            }
            for one in together {
                // A guest that has ended needs no answer.
                if self.answer(&one).is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&mut self, asked: &Asked) -> std::io::Result<()> {
        let at = usize::try_from(asked.offset).unwrap();
        let mut reply = REPLY.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(asked.cookie);
        match asked.kind {
            0 => reply.extend(&self.content[at..at + asked.length]),
            1 => self.content[at..at + asked.length].copy_from_slice(&asked.data),
            _ => {}
        }
        if let Some(number) = asked.recorded {
            let mut shared = self.shared.lock().unwrap();
            shared.clock += 1;
            shared.requests[number].answered = shared.clock;
        }
        self.stream.write_all(&reply)
    }
}

/// Reads requests until the guest ends, and records those that change something.
fn read_requests(
    disk: usize,
    mut stream: UnixStream,
    shared: &Mutex<Shared>,
    sender: &Sender<Asked>,
) {
    let mut header = [0; 28];
    while stream.read_exact(&mut header).is_ok() {
        let short = |at: usize| u16::from_be_bytes(header[at..at + 2].try_into().unwrap());
        let length = u32::from_be_bytes(header[24..].try_into().unwrap()) as usize;
        let mut asked = Asked {
            flags: short(4),
            kind: short(6),
            cookie: header[8..16].try_into().unwrap(),
            offset: u64::from_be_bytes(header[16..24].try_into().unwrap()),
            length,
            data: Vec::new(),
            recorded: None,
        };
        let kind = match asked.kind {
            0 => None,
            1 => {
                asked.data = vec![0; length];
                if stream.read_exact(&mut asked.data).is_err() {
                    return;
                }
                Some(Kind::Write {
                    offset: asked.offset,
                    data: asked.data.clone(),
                    through: asked.flags & FUA != 0,
                })
            }
            2 => return,
            3 => Some(Kind::Flush),
            other => panic!("a disk without discards is asked for {other}"),
        };
        if let Some(kind) = kind {
            let mut shared = shared.lock().unwrap();
            shared.clock += 1;
            asked.recorded = Some(shared.requests.len());
            let came = shared.clock;
            shared.requests.push(Request {
                disk,
                kind,
                came,
                answered: usize::MAX,
            });
        }
        if sender.send(asked).is_err() {
            return;
        }
    }
}

/// What becomes of a write that was in the cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    Lost,
    /// Only these of its parts of so many bytes are on the disk.
    Torn(usize, Vec<bool>),
}

/// All that was asked of the disks of a guest, in the order in which it came.
pub struct Recording {
    requests: Vec<Request>,
}

impl Recording {
    /// What was asked of some of the disks, which are counted anew.
    pub fn of(&self, disks: Range<usize>) -> Self {
        let asked = self.requests.iter().filter(|one| disks.contains(&one.disk));
        let anew = |one: &Request| Request {
            disk: one.disk - disks.start,
            ..one.clone()
        };
        Self {
            requests: asked.map(anew).collect(),
        }
    }

    pub fn request(&self, number: usize) -> &Request {
        &self.requests[number]
    }

    /// When the guest wrote this text to its disk for such marks.
    pub fn mark(&self, disk: usize, text: &str) -> Option<usize> {
        let is_mark = |request: &&Request| match &request.kind {
            Kind::Write { data, .. } => request.disk == disk && data.starts_with(text.as_bytes()),
            Kind::Flush => false,
        };
        self.requests
            .iter()
            .find(is_mark)
            .map(|request| request.came)
    }

    /// How many writes came to the first disks between two moments.
    pub fn writes(&self, disks: usize, from: usize, to: usize) -> usize {
        let counts = |one: &&Request| {
            one.disk < disks && one.kind != Kind::Flush && (from..to).contains(&one.came)
        };
        self.requests.iter().filter(counts).count()
    }

    /// The writes to the first disks that had come until a moment.
    pub fn until(&self, disks: usize, moment: usize) -> impl Iterator<Item = usize> {
        let numbered = self.requests.iter().enumerate();
        numbered
            .filter(move |(_, one)| {
                one.disk < disks && one.came <= moment && one.kind != Kind::Flush
            })
            .map(|(number, _)| number)
    }

    /// The moments right before a flush of these disks is done: none has more in the caches than they have.
    pub fn before_flushes(&self, disks: usize, from: usize, to: usize) -> Vec<usize> {
        let flushes = self
            .requests
            .iter()
            .filter(|one| one.disk < disks && one.kind == Kind::Flush);
        flushes
            .map(|flush| flush.answered - 1)
            .filter(|moment| (from..to).contains(moment))
            .collect()
    }

    /// The writes that had come until a moment and need not be on the disks then: those that were not answered before a
    /// flush came that is done. `flushes` says whether there is such a flush at that moment.
    pub fn volatile(
        &self,
        disks: usize,
        moment: usize,
        flushes: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let flushed = |disk: usize| {
            let done = self.requests.iter().filter(|one| {
                one.disk == disk
                    && one.kind == Kind::Flush
                    && one.answered <= moment
                    && flushes(one.came)
            });
            done.map(|flush| flush.came).max().unwrap_or(0)
        };
        let flushed: Vec<usize> = (0..disks).map(flushed).collect();
        let is_volatile = |one: &Request| match &one.kind {
            Kind::Write { through, .. } => {
                let went_through = *through && one.answered <= moment && flushes(one.came);
                one.disk < disks
                    && one.came <= moment
                    && one.answered >= flushed[one.disk]
                    && !went_through
            }
            Kind::Flush => false,
        };
        let numbered = self.requests.iter().enumerate();
        numbered
            .filter(|(_, one)| is_volatile(one))
            .map(|(number, _)| number)
            .collect()
    }

    /// Repeats on a disk as it was at first what it has of the writes that had come until a moment.
    pub fn replay(&self, disk: usize, file: &File, moment: usize, fates: &BTreeMap<usize, Fate>) {
        for (number, one) in self.requests.iter().enumerate() {
            let Kind::Write { offset, data, .. } = &one.kind else {
                continue;
            };
            if one.disk != disk || one.came > moment {
                continue;
            }
            match fates.get(&number) {
                None => file.write_all_at(data, *offset).unwrap(),
                Some(Fate::Lost) => {}
                Some(Fate::Torn(size, kept)) => {
                    for (part, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                        let at = part * size;
                        let piece = &data[at..data.len().min(at + size)];
                        file.write_all_at(piece, offset + at as u64).unwrap();
                    }
                }
            }
        }
    }
}
