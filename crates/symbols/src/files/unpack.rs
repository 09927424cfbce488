//! A file's bytes, unpacked where it is compressed in a way that is known here.

use bpf::FileMap;
use flate2::read::GzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{ErrorKind, Read};
use std::ops::Deref;
use std::path::Path;

/// No module is larger: a file that says so is wrong.
const LARGEST: u64 = 512 << 20;

/// Bytes of a file, mapped or unpacked.
pub(super) enum Bytes {
    Mapped(FileMap),
    Unpacked(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Unpacked(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// Opens a file; `None` when there is none that this user may read.
    ///
    /// # Errors
    /// It cannot be read, or it is compressed with xz; in one line.
    pub fn open(path: &Path) -> Result<Option<Bytes>, String> {
        let said = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let map = match FileMap::open(path) {
            Ok(map) => map,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            // As of another user's cache.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                log::debug!("passed over: {}", said(&e));
                return Ok(None);
            }
            Err(e) => return Err(said(&e)),
        };
        match map.as_ref() {
            [0x1f, 0x8b, ..] => unpack(GzDecoder::new(&*map)).map(Some).map_err(|e| said(&e)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = StreamingDecoder::new(&*map).map_err(|e| said(&e))?;
                unpack(decoder).map(Some).map_err(|e| said(&e))
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Err(said(
                &"it is compressed (xz), which btrace does not unpack: xz -dk makes a file of it that is not",
            )),
            _ => Ok(Some(Bytes::Mapped(map))),
        }
    }
}

fn unpack(from: impl Read) -> std::io::Result<Bytes> {
    let mut bytes = Vec::new();
    let mut from = from.take(LARGEST + 1);
    from.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(std::io::Error::other("larger than any module, once it is unpacked"));
    }
    Ok(Bytes::Unpacked(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_packed_is_unpacked_or_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("m.ko.gz");
        let file = std::fs::File::create(&path).expect("file");
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        gz.write_all(b"\x7fELF and more").expect("write");
        gz.finish().expect("finish");
        let open = |path: &Path| Bytes::open(path).map(|bytes| bytes.map(|b| b.to_vec()));
        assert_eq!(open(&path), Ok(Some(b"\x7fELF and more".to_vec())));
        let zst = folder.path().join("m.ko.zst");
        let packed = ruzstd::encoding::compress_to_vec(
            &b"\x7fELF once more"[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        std::fs::write(&zst, &packed).expect("write");
        assert_eq!(open(&zst), Ok(Some(b"\x7fELF once more".to_vec())));
        std::fs::write(&zst, &packed[..8]).expect("write");
        assert!(open(&zst).is_err(), "cut short");
        std::fs::write(&path, b"\xfd7zXZ\0\0\0").expect("write");
        let refused = open(&path).expect_err("xz");
        assert!(refused.contains("m.ko.gz: it is compressed (xz)"), "{refused}");
        assert_eq!(open(&folder.path().join("none")), Ok(None));
        std::fs::write(&path, b"\x1f\x8b").expect("write");
        assert!(open(&path).is_err());
    }
}
