//! Frames: a type byte, a 4-byte length that counts itself, a body.

/// Bytes of a frame before its body.
pub const FRAME_HEAD_LEN: usize = 5;

/// The longest body that PostgreSQL itself can build or read (`MaxAllocSize` of `memutils.h`, 1 GiB - 1).
pub const MAX_FRAME_BODY: usize = 0x3FFF_FFFF;

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type byte.
    pub tag: u8,
    /// What follows the length.
    pub body: &'a [u8],
}

/// What a buffer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split<T> {
    /// A whole frame or packet, which takes `len` bytes of the buffer.
    Whole {
        /// The frame.
        frame: T,
        /// Bytes it takes, with its head.
        len: usize,
    },
    /// Only a part; nothing can be done before `need` bytes are there.
    Partial {
        /// Length the buffer must have: of the head, or of the whole frame once the head is there.
        need: usize,
    },
}

/// A length that no frame can have. Nothing that follows on the connection can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Less than the length field itself.
    #[error("a message of type {} claims a length of {claimed} bytes, less than its own head", tag.escape_ascii())]
    TooShort {
        /// The type byte.
        tag: u8,
        /// The length field.
        claimed: u32,
    },
    /// More than allowed.
    #[error(
        "a message of type {} claims a length of {claimed} bytes, more than the allowed {max}", tag.escape_ascii()
    )]
    TooLong {
        /// The type byte.
        tag: u8,
        /// The length field.
        claimed: u32,
        /// The longest body allowed, with the length field.
        max: usize,
    },
}

/// Splits the first frame off `buffer`. Never more than what is there is looked at, and a body longer than
/// `max_body` is refused as soon as its head is there.
pub fn split_frame(buffer: &[u8], max_body: usize) -> Result<Split<Frame<'_>>, FrameError> {
    let Some((&[tag, a, b, c, d], rest)) = buffer.split_first_chunk::<FRAME_HEAD_LEN>() else {
        return Ok(Split::Partial {
            need: FRAME_HEAD_LEN,
        });
    };
    let claimed = u32::from_be_bytes([a, b, c, d]);
    let Some(body) = claimed.checked_sub(4) else {
        return Err(FrameError::TooShort { tag, claimed });
    };
    let body = usize::try_from(body).unwrap_or(usize::MAX);
    if body > max_body {
        let max = max_body.saturating_add(4);
        return Err(FrameError::TooLong { tag, claimed, max });
    }
    let len = FRAME_HEAD_LEN + body;
    Ok(match rest.get(..body) {
        Some(body) => Split::Whole {
            frame: Frame { tag, body },
            len,
        },
        None => Split::Partial { need: len },
    })
}

/// Appends a frame whose body `write` appends.
pub fn put_frame(tag: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    put_sized(out, write);
}

/// Appends a length that counts itself and what `write` appends.
pub(super) fn put_sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    // Longer than 4 GiB is not a message of this protocol: the peer refuses what it then reads.
    let length = u32::try_from(out.len().saturating_sub(start)).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *place = length.to_be_bytes();
    }
}

/// Appends a string and its zero. A zero inside it would end it early, so the string is cut there.
pub(super) fn put_cstr(text: &[u8], out: &mut Vec<u8>) {
    out.extend(text.iter().take_while(|&&byte| byte != 0));
    out.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_whole_frames_and_asks_for_the_rest_of_others() {
        let mut bytes = Vec::new();
        put_frame(b'Q', &mut bytes, |out| out.extend_from_slice(b"SELECT 1\0"));
        bytes.extend_from_slice(b"X");
        let Ok(Split::Whole { frame, len }) = split_frame(&bytes, 100) else {
            panic!("a whole frame is there");
        };
        assert_eq!((frame.tag, frame.body, len), (b'Q', &b"SELECT 1\0"[..], 14));
        for cut in 0..14 {
            let need = if cut < 5 { 5 } else { 14 };
            assert_eq!(split_frame(&bytes[..cut], 100), Ok(Split::Partial { need }));
        }
    }

    #[test]
    fn refuses_lengths_before_their_bytes_are_there() {
        assert!(matches!(
            split_frame(b"Q\0\0\0\x03", 100),
            Err(FrameError::TooShort { claimed: 3, .. })
        ));
        assert!(matches!(
            split_frame(b"Q\xFF\xFF\xFF\xFF", 100),
            Err(FrameError::TooLong { max: 104, .. })
        ));
        assert!(split_frame(b"Q\0\0\0\x68", 100).is_ok());
        assert!(split_frame(b"Q\0\0\0\x69", 100).is_err());
    }
}
