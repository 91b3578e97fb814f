//! The database (`db`, bbolt): two meta pages with a checksum, and a tree of pages.
//!
//! etcd does not store the list of free pages. At its start it walks all pages in use and treats the others as free, so one bad
//! page prevents it from starting. Numbers have the machine's byte order, because bbolt maps the file: big-endian on s390x. A
//! database from another kind of machine is not valid for etcd either.

use std::{fmt, io};

use super::proto::{self, BYTES, Malformed, NUMBER};

/// Bytes of a page header.
const HEADER: usize = 16;
/// Bytes of an element of a page, and of a bucket before its inline page.
const ELEMENT: usize = 16;
const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const FREELIST: u16 = 0x10;
/// The number that marks a list of free pages as not stored.
const NOT_STORED: u64 = u64::MAX;
/// Maximum depth of pages that is followed; a tree of 2^64 pages is shallower.
const DEPTH: u8 = 64;
/// Maximum size of a page that is read, with its overflow: an etcd value has up to 1.5 MB, or up to 100 MB if that limit is
/// raised.
const LARGEST: u64 = 256 << 20;

/// Bytes at any offset.
pub trait Bytes {
    /// Fills all of `into` from an offset.
    ///
    /// # Errors
    /// The system's error, or the end of the data.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Bytes for std::fs::File {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, into, at)
    }
}

impl Bytes for &[u8] {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let part = usize::try_from(at)
            .ok()
            .and_then(|at| self.get(at..)?.get(..into.len()));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Returns true if the first page is a meta page, so that the file is a database, intact or not.
pub fn is_database(bytes: &impl Bytes) -> bool {
    let mut page = [0; HEADER + 8];
    bytes.read_at(0, &mut page).is_ok() && read_u32(&page, HEADER) == Some(MAGIC)
}

/// A fault of a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoltFault {
    /// Neither of the two meta pages is valid.
    #[error("invalid database: no valid meta page")]
    NoMeta,
    /// The file is shorter than two pages.
    #[error("file size too small ({0} bytes)")]
    TooSmall(u64),
    /// A page in use is beyond the end of the file.
    #[error("page {page} is in use and beyond the end of the file")]
    Truncated {
        /// The page.
        page: u64,
    },
    /// A page in use is bad.
    #[error("page {page}: {fault}")]
    Page {
        /// The page.
        page: u64,
        /// The fault.
        fault: PageFault,
    },
    /// A value in a good page cannot be read by etcd.
    #[error("bucket {bucket}: {what}")]
    Value {
        /// The bucket.
        bucket: String,
        /// The fault.
        what: &'static str,
    },
}

/// A fault of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFault {
    /// It is beyond the last page of the database.
    OutOfBounds,
    /// It claims to be another page.
    Identifies(u64),
    /// It is not a page of a tree; its flags.
    Type(u16),
    /// Two pages lead to it.
    Twice,
    /// An element extends beyond it.
    Element,
    /// Its keys are not in order.
    Order,
}

impl fmt::Display for PageFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds => write!(out, "out of bounds"),
            Self::Identifies(id) => write!(out, "it self identifies as {id}"),
            Self::Type(flags) => write!(out, "invalid type: unknown<{flags:02x}>"),
            Self::Twice => write!(out, "multiple references"),
            Self::Element => write!(out, "an element is outside of the page"),
            Self::Order => write!(out, "its keys are not in order"),
        }
    }
}

/// A reason why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// It is damaged.
    #[error(transparent)]
    Damaged(#[from] BoltFault),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// A meta page: the root of all pages after one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoltMeta {
    /// Bytes of a page.
    pub page_size: u64,
    /// The page of the root bucket.
    pub root: u64,
    /// The page of the list of free pages.
    pub freelist: u64,
    /// Number of pages; every page in use has a lower number.
    pub pages: u64,
    /// The commit.
    pub commit: u64,
}

impl BoltMeta {
    /// Parses a meta page; `None` if it is not valid.
    fn parse(page: &[u8]) -> Option<Self> {
        let meta = page.get(HEADER..HEADER + 64)?;
        let valid = read_u64(meta, 56)? == fnv1a(&meta[..56])
            && read_u32(meta, 0)? == MAGIC
            && read_u32(meta, 4)? == VERSION;
        let page_size = u64::from(read_u32(meta, 8)?);
        let sane = page_size.is_power_of_two() && (1024..=16 << 20).contains(&page_size);
        Some(Self {
            page_size,
            root: read_u64(meta, 16)?,
            freelist: read_u64(meta, 32)?,
            pages: read_u64(meta, 40)?,
            commit: read_u64(meta, 48)?,
        })
        .filter(|_| valid && sane)
    }
}

/// A database.
#[derive(Debug)]
pub struct Database<B> {
    bytes: B,
    length: u64,
    meta: BoltMeta,
    /// The invalid meta page, if any: 0 or 1.
    pub bad_meta: Option<u8>,
}

/// The contents of a database, as far as etcd needs them to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoltContents {
    /// Index of the last log entry that it contains; 0 if not stated.
    pub consistent_index: u64,
    /// Alarms that the cluster has raised, by number: 1 for no space, 2 for corrupt.
    pub alarms: Vec<u64>,
}

impl<B: Bytes> Database<B> {
    /// Opens a database of `length` bytes, which must not be zero.
    ///
    /// # Errors
    /// It has no valid meta page, or cannot be read.
    pub fn open(bytes: B, length: u64) -> Result<Self, BoltError> {
        let at = |offset: u64| -> io::Result<Option<BoltMeta>> {
            let mut page = [0; HEADER + 64];
            if offset + page.len() as u64 > length {
                return Ok(None);
            }
            bytes.read_at(offset, &mut page)?;
            Ok(BoltMeta::parse(&page))
        };
        let first = at(0)?;
        // If the first one is invalid, the page size is unknown.
        let sizes = match first {
            Some(first) => vec![first.page_size],
            None => (10..=24).map(|bits| 1 << bits).collect(),
        };
        let mut second = None;
        for size in sizes {
            second = second.or(at(size)?.filter(|meta| meta.page_size == size));
        }
        let meta = match (first, second) {
            (Some(first), Some(second)) if second.commit > first.commit => second,
            (Some(meta), _) | (None, Some(meta)) => meta,
            (None, None) => {
                return Err(match length {
                    0..8192 => BoltFault::TooSmall(length),
                    _ => BoltFault::NoMeta,
                }
                .into());
            }
        };
        if length < 2 * meta.page_size {
            return Err(BoltFault::TooSmall(length).into());
        }
        let bad_meta = match (first, second) {
            (None, _) => Some(0),
            (_, None) => Some(1),
            _ => None,
        };
        Ok(Self {
            bytes,
            length,
            meta,
            bad_meta,
        })
    }

    /// Returns the meta page in use.
    pub fn meta(&self) -> BoltMeta {
        self.meta
    }

    /// Returns true if the file ends before the last page of the database. The missing pages may be free ones.
    pub fn is_short(&self) -> bool {
        self.meta.pages.saturating_mul(self.meta.page_size) > self.length
    }

    /// Reads what etcd looks up, and no other page.
    ///
    /// # Errors
    /// A page on the way is damaged, or cannot be read.
    pub fn read_contents(&self) -> Result<BoltContents, BoltError> {
        let mut contents = BoltContents::default();
        if let Some(index) = self.find_value(b"meta", b"consistent_index")? {
            contents.consistent_index = consistent_index(&index)?;
        }
        if let Some(bucket) = self.find_bucket(b"alarm")? {
            let mut alarms = Vec::new();
            self.visit_bucket(&bucket, &mut |key, _| {
                // Keys of a damaged page may overlap, so they are not stored.
                if alarms.len() < ALARMS {
                    alarms.push(kind_of_alarm(key));
                }
            })?;
            for alarm in alarms {
                contents.alarms.push(alarm?);
            }
        }
        Ok(contents)
    }

    /// Walks all pages in use, like etcd at its start, and checks the values that etcd reads then.
    ///
    /// # Errors
    /// A page or a value is damaged, or cannot be read.
    pub fn walk_pages(&self) -> Result<(), BoltError> {
        let mut walk = Walk {
            database: self,
            seen: vec![0; usize::try_from(self.pages_at_most() / 64 + 1).unwrap_or_default()],
        };
        walk.seen[0] |= 3;
        if self.meta.freelist != NOT_STORED {
            let page = self.read_page(self.meta.freelist)?;
            if page.flags & FREELIST == 0 {
                return Err(damaged_page(
                    self.meta.freelist,
                    PageFault::Type(page.flags),
                ));
            }
            walk.mark_pages(self.meta.freelist, page.overflow)?;
        }
        walk.walk_bucket(self.meta.root, None, DEPTH)
    }

    /// Returns the number of pages, limited to those that the file has.
    fn pages_at_most(&self) -> u64 {
        self.meta.pages.min(self.length / self.meta.page_size + 1)
    }

    fn read_page(&self, number: u64) -> Result<Page, BoltError> {
        if number < 2 || number >= self.meta.pages {
            return Err(damaged_page(number, PageFault::OutOfBounds));
        }
        let size = self.meta.page_size;
        let truncated = || BoltFault::Truncated { page: number };
        let at = number.checked_mul(size).ok_or_else(truncated)?;
        let room = self.length.checked_sub(at).filter(|room| *room >= size);
        let room = room.ok_or_else(truncated)?;
        let mut header = [0; HEADER];
        self.bytes.read_at(at, &mut header)?;
        let page = Page::parse(&header);
        if page.id != number {
            return Err(damaged_page(number, PageFault::Identifies(page.id)));
        }
        let whole = size * (u64::from(page.overflow) + 1);
        let behind = number + u64::from(page.overflow) >= self.meta.pages;
        if behind || whole > LARGEST {
            return Err(damaged_page(number, PageFault::OutOfBounds));
        }
        if whole > room {
            return Err(truncated().into());
        }
        let mut bytes = vec![0; usize::try_from(whole).map_err(|_| truncated())?];
        self.bytes.read_at(at, &mut bytes)?;
        Ok(Page { bytes, ..page })
    }

    /// Returns the page of a tree.
    fn read_node(&self, number: u64) -> Result<Page, BoltError> {
        let page = self.read_page(number)?;
        match page.flags & (BRANCH | LEAF) {
            0 => Err(damaged_page(number, PageFault::Type(page.flags))),
            _ => Ok(page),
        }
    }

    /// Returns the value of a bucket: its root page, and what follows.
    fn find_bucket(&self, name: &[u8]) -> Result<Option<Vec<u8>>, BoltError> {
        self.find_in_tree(self.meta.root, name)
    }

    fn find_value(&self, bucket: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>, BoltError> {
        let Some(bucket) = self.find_bucket(bucket)? else {
            return Ok(None);
        };
        match Bucket::parse(&bucket) {
            Some(Bucket::Tree(root)) => self.find_in_tree(root, key),
            Some(Bucket::Inline(page)) => Ok(page.find_value(key)),
            None => Ok(None),
        }
    }

    fn find_in_tree(&self, root: u64, key: &[u8]) -> Result<Option<Vec<u8>>, BoltError> {
        let mut number = root;
        for _ in 0..DEPTH {
            let page = self.read_node(number)?;
            if page.flags & BRANCH == 0 {
                return Ok(page.find_value(key));
            }
            let mut next = None;
            for place in 0..page.count {
                let (first, child) = page.branch_at(place).ok_or_else(|| page_outside(number))?;
                if next.is_none() || first <= key {
                    next = Some(child);
                }
            }
            number = next.ok_or_else(|| page_outside(number))?;
        }
        Err(damaged_page(number, PageFault::Twice))
    }

    /// Calls `each` with the keys and values of a top-level bucket, in no particular order; never, if the bucket does not
    /// exist.
    ///
    /// # Errors
    /// A page is damaged, or cannot be read.
    pub fn each_leaf(
        &self,
        name: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BoltError> {
        match self.find_bucket(name)? {
            Some(bucket) => self.leaves_within(&bucket, self.pages_at_most(), each),
            None => Ok(()),
        }
    }

    /// Calls `each` for all keys and values of a small bucket.
    fn visit_bucket(
        &self,
        bucket: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BoltError> {
        self.leaves_within(bucket, PAGES, each)
    }

    /// Calls `each` for the keys and values of at most this many pages.
    fn leaves_within(
        &self,
        bucket: &[u8],
        pages: u64,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), BoltError> {
        let mut left = pages;
        let mut pages = match Bucket::parse(bucket) {
            Some(Bucket::Inline(page)) => {
                page.visit_leaves(each);
                return Ok(());
            }
            Some(Bucket::Tree(root)) => vec![root],
            None => return Ok(()),
        };
        while let (Some(number), Some(rest)) = (pages.pop(), u64::checked_sub(left, 1)) {
            left = rest;
            let page = self.read_node(number)?;
            if page.flags & BRANCH == 0 {
                page.visit_leaves(each);
                continue;
            }
            for place in 0..page.count {
                pages.push(page.branch_at(place).ok_or_else(|| page_outside(number))?.1);
            }
        }
        Ok(())
    }
}

/// Maximum number of alarms that are listed: one for each member and kind.
const ALARMS: usize = 64;
/// Pages of a small bucket.
const PAGES: u64 = 64;
/// Limit on the total length of a page's keys and values, in page lengths. Those of a good page fit into it once; more is
/// tolerated, because etcd does not check for overlaps, but not without limit.
const OVERLAPS: usize = 16;

fn damaged_page(page: u64, fault: PageFault) -> BoltError {
    BoltFault::Page { page, fault }.into()
}

fn page_outside(page: u64) -> BoltError {
    damaged_page(page, PageFault::Element)
}

/// A page, including its overflow pages.
struct Page {
    id: u64,
    flags: u16,
    count: u16,
    overflow: u32,
    bytes: Vec<u8>,
}

/// A bucket: a tree of its own, or a page inside the value.
enum Bucket {
    Tree(u64),
    Inline(Page),
}

impl Bucket {
    fn parse(value: &[u8]) -> Option<Self> {
        Some(match read_u64(value, 0)? {
            0 => {
                let bytes = value.get(ELEMENT..)?;
                let page = Page::parse(bytes.get(..HEADER)?);
                Self::Inline(Page {
                    bytes: bytes.to_vec(),
                    ..page
                })
            }
            root => Self::Tree(root),
        })
    }
}

/// An element of a leaf.
struct Leaf<'a> {
    is_bucket: bool,
    key: &'a [u8],
    value: &'a [u8],
}

impl Page {
    fn parse(header: &[u8]) -> Self {
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        Self {
            id: read_u64(header, 0).unwrap_or_default(),
            flags: half(8),
            count: half(10),
            overflow: read_u32(header, 12).unwrap_or_default(),
            bytes: Vec::new(),
        }
    }

    /// Returns the key and the page number of an element.
    fn branch_at(&self, place: u16) -> Option<(&[u8], u64)> {
        let at = HEADER + usize::from(place) * ELEMENT;
        let element = self.bytes.get(at..at + ELEMENT)?;
        let key = self.bytes_at(at, read_u32(element, 0)?, read_u32(element, 4)?)?;
        Some((key, read_u64(element, 8)?))
    }

    fn leaf_at(&self, place: u16) -> Option<Leaf<'_>> {
        let at = HEADER + usize::from(place) * ELEMENT;
        let element = self.bytes.get(at..at + ELEMENT)?;
        let (position, key) = (read_u32(element, 4)?, read_u32(element, 8)?);
        Some(Leaf {
            is_bucket: read_u32(element, 0)? & 1 == 1,
            key: self.bytes_at(at, position, key)?,
            value: self.bytes_at(at, position.checked_add(key)?, read_u32(element, 12)?)?,
        })
    }

    fn bytes_at(&self, at: usize, position: u32, length: u32) -> Option<&[u8]> {
        let from = at.checked_add(usize::try_from(position).ok()?)?;
        self.bytes.get(from..)?.get(..usize::try_from(length).ok()?)
    }

    fn find_value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let all = (0..self.count).filter_map(|place| self.leaf_at(place));
        let mut all = all.filter(|leaf| leaf.key == key);
        all.next().map(|leaf| leaf.value.to_vec())
    }

    fn visit_leaves(&self, each: &mut dyn FnMut(&[u8], &[u8])) {
        for leaf in (0..self.count).filter_map(|place| self.leaf_at(place)) {
            each(leaf.key, leaf.value);
        }
    }
}

/// Bounds of a tree's keys: the first inclusive, the second exclusive.
type Between<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

struct Walk<'a, B> {
    database: &'a Database<B>,
    /// A bit for each page.
    seen: Vec<u64>,
}

impl<B: Bytes> Walk<'_, B> {
    fn mark_pages(&mut self, page: u64, overflow: u32) -> Result<(), BoltError> {
        for number in page..=page + u64::from(overflow) {
            let place = usize::try_from(number / 64).unwrap_or(usize::MAX);
            let bit = 1 << (number % 64);
            let Some(word) = self.seen.get_mut(place) else {
                return Err(damaged_page(page, PageFault::OutOfBounds));
            };
            if *word & bit != 0 {
                return Err(damaged_page(number, PageFault::Twice));
            }
            *word |= bit;
        }
        Ok(())
    }

    /// Walks a bucket. `name` is that of a top-level bucket; the root bucket has none.
    fn walk_bucket(&mut self, root: u64, name: Option<&[u8]>, depth: u8) -> Result<(), BoltError> {
        self.walk_tree(root, name, (None, None), depth).map(drop)
    }

    /// Walks a tree, and returns the last key below the page.
    fn walk_tree(
        &mut self,
        number: u64,
        name: Option<&[u8]>,
        between: Between<'_>,
        depth: u8,
    ) -> Result<Option<Vec<u8>>, BoltError> {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| damaged_page(number, PageFault::Twice))?;
        let page = self.database.read_node(number)?;
        self.mark_pages(number, page.overflow)?;
        if page.flags & BRANCH == 0 {
            return self.check_leaf(number, &page, name, between, Some(depth));
        }
        let order = || damaged_page(number, PageFault::Order);
        let mut below = between.0.map(<[u8]>::to_vec);
        for place in 0..page.count {
            let (key, child) = page.branch_at(place).ok_or_else(|| page_outside(number))?;
            if below.as_deref().is_some_and(|below| below > key)
                || between.1.is_some_and(|until| key >= until)
            {
                return Err(order());
            }
            let next = if place + 1 < page.count {
                Some(
                    page.branch_at(place + 1)
                        .ok_or_else(|| page_outside(number))?
                        .0,
                )
            } else {
                between.1
            };
            below = self.walk_tree(child, name, (Some(key), next), depth)?;
        }
        Ok(below)
    }

    /// Checks a leaf. `depth` is missing for a page inside a value: etcd does not follow the buckets in it.
    fn check_leaf(
        &mut self,
        number: u64,
        page: &Page,
        name: Option<&[u8]>,
        between: Between<'_>,
        depth: Option<u8>,
    ) -> Result<Option<Vec<u8>>, BoltError> {
        let mut room = page.bytes.len().saturating_mul(OVERLAPS);
        let mut before: Option<Vec<u8>> = None;
        for place in 0..page.count {
            let leaf = page.leaf_at(place).ok_or_else(|| page_outside(number))?;
            let length = leaf.key.len() + leaf.value.len();
            room = room
                .checked_sub(length)
                .ok_or_else(|| page_outside(number))?;
            let early = match &before {
                Some(before) => before.as_slice() >= leaf.key,
                None => between.0.is_some_and(|from| from > leaf.key),
            };
            if early || between.1.is_some_and(|until| leaf.key >= until) {
                return Err(damaged_page(number, PageFault::Order));
            }
            before = Some(leaf.key.to_vec());
            if !leaf.is_bucket {
                check_value(name.unwrap_or_default(), &leaf)?;
                continue;
            }
            let Some(depth) = depth else {
                continue;
            };
            let below = name.unwrap_or(leaf.key);
            match Bucket::parse(leaf.value).ok_or_else(|| page_outside(number))? {
                Bucket::Tree(root) => self.walk_bucket(root, Some(below), depth)?,
                Bucket::Inline(page) if page.flags & LEAF == 0 => {
                    return Err(damaged_page(number, PageFault::Type(page.flags)));
                }
                Bucket::Inline(page) => {
                    self.check_leaf(number, &page, Some(below), (None, None), None)?;
                }
            }
        }
        Ok(before)
    }
}

/// Parses a value as etcd does at its start.
fn check_value(bucket: &[u8], leaf: &Leaf<'_>) -> Result<(), BoltError> {
    let wrong = |what| BoltFault::Value {
        bucket: String::from_utf8_lossy(bucket).into_owned(),
        what,
    };
    match bucket {
        b"key" if !(17..=18).contains(&leaf.key.len()) => {
            Err(wrong("a key is not a revision").into())
        }
        b"key" => check_fields(leaf.value, &[BYTES, NUMBER, NUMBER, NUMBER, BYTES, NUMBER])
            .map_err(|_| wrong("failed to unmarshal mvccpb.KeyValue").into()),
        b"lease" => check_fields(leaf.value, &[NUMBER, NUMBER, NUMBER])
            .map_err(|_| wrong("failed to unmarshal lease proto item").into()),
        b"meta" if leaf.key == b"consistent_index" => consistent_index(leaf.value).map(drop),
        b"alarm" => kind_of_alarm(leaf.key).map(drop),
        _ => Ok(()),
    }
}

/// Checks a message whose fields, counted from 1, have these kinds.
fn check_fields(message: &[u8], kinds: &'static [u8]) -> Result<(), Malformed> {
    proto::read_fields(message, kinds).try_for_each(|field| field.map(drop))
}

fn consistent_index(value: &[u8]) -> Result<u64, BoltError> {
    let short = || BoltFault::Value {
        bucket: "meta".to_owned(),
        what: "consistent_index has fewer than 8 bytes",
    };
    let number = value.first_chunk::<8>().ok_or_else(short)?;
    Ok(u64::from_be_bytes(*number))
}

fn kind_of_alarm(key: &[u8]) -> Result<u64, BoltError> {
    let mut kind = 0;
    for field in proto::read_fields(key, &[NUMBER, NUMBER]) {
        let wrong = |_| BoltFault::Value {
            bucket: "alarm".to_owned(),
            what: "failed to unmarshal alarm member",
        };
        if let (2, value) = field.map_err(wrong)? {
            kind = proto::read_number(value).map_err(wrong)?;
        }
    }
    Ok(kind)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns FNV-1a of 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4096;

    /// Puts a number into a page.
    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn page(id: u64, flags: u16, count: u16) -> Vec<u8> {
        let mut page = id.to_ne_bytes().to_vec();
        page.extend(flags.to_ne_bytes());
        page.extend(count.to_ne_bytes());
        page.extend([0; 4]);
        page
    }

    fn element(flags: u32, position: u32, key: u32, value: usize) -> Vec<u8> {
        let value = u32::try_from(value).unwrap();
        let all = [flags, position, key, value].map(u32::to_ne_bytes);
        all.concat()
    }

    /// A database whose root page has one element with this key and value.
    fn database(flags: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut all = vec![0; 3 * SIZE];
        for number in 0..2_u64 {
            let at = if number == 0 { 0 } else { SIZE };
            put(&mut all, at, &page(number, 4, 0));
            let meta = at + HEADER;
            put(&mut all, meta, &MAGIC.to_ne_bytes());
            put(&mut all, meta + 4, &VERSION.to_ne_bytes());
            put(&mut all, meta + 8, &4096_u32.to_ne_bytes());
            put(&mut all, meta + 16, &2_u64.to_ne_bytes());
            put(&mut all, meta + 32, &NOT_STORED.to_ne_bytes());
            put(&mut all, meta + 40, &3_u64.to_ne_bytes());
            put(&mut all, meta + 48, &number.to_ne_bytes());
            let sum = fnv1a(&all[meta..meta + 56]).to_ne_bytes();
            put(&mut all, meta + 56, &sum);
        }
        let length = u32::try_from(key.len()).unwrap();
        let root = [
            page(2, LEAF, 1),
            element(flags, 16, length, value.len()),
            key.to_vec(),
            value.to_vec(),
        ];
        put(&mut all, 2 * SIZE, &root.concat());
        all
    }

    fn walk(bytes: &[u8]) -> Result<(), BoltError> {
        Database::open(bytes, bytes.len() as u64)?.walk_pages()
    }

    #[test]
    fn buckets_inside_of_values_do_not_multiply() {
        // Two keys of each page lead to the same value: 2^50 paths to the last one.
        let mut value = [vec![0; ELEMENT], page(0, LEAF, 0)].concat();
        for _ in 0..50 {
            let next = [
                vec![0; ELEMENT],
                page(0, LEAF, 2),
                element(1, 33, 1, value.len()),
                element(1, 16, 2, value.len()),
                b"ba".to_vec(),
                value,
            ];
            value = next.concat();
        }
        assert!(walk(&database(1, b"lease", &value)).is_ok());
    }

    #[test]
    fn keys_that_overlap_are_read_within_bounds() {
        // Each key is longer than the previous one, and all of them end at the end of the page.
        let count = 100_u16;
        let mut inner = [vec![0; ELEMENT], page(0, LEAF, count)].concat();
        let end = 2000 + u32::from(count) * 16;
        for place in 0..u32::from(count) {
            let length = 1500 + place;
            inner.extend(element(0, end - length - place * 16, length, 0));
        }
        inner.resize(ELEMENT + HEADER + end as usize, 0);
        let error = walk(&database(1, b"auth", &inner)).unwrap_err().to_string();
        assert_eq!(error, "page 2: an element is outside of the page");
    }
}
