//! CBOR as far as a summary has it, read where it lies: an item is a few instructions, and what goes wrong is a word.

use std::marker::PhantomData;

use minicbor::Decoder;

use super::format::{DecodeError, damaged};

pub(super) type Read<T> = Result<T, DecodeError>;

const NUMBER: u8 = 0;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;

const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;

/// Bytes of which a begin was read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Fields of an array that stand behind those that are known.
#[must_use = "an array must be closed"]
pub(super) struct Unknown(u64);

impl Unknown {
    /// Whether there is one more field, which is then to be read.
    pub(super) fn takes_one(&mut self) -> bool {
        let one = self.0 > 0;
        self.0 -= u64::from(one);
        one
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The argument of an item of this major type (RFC 8949, 3). None is of indefinite length.
    #[inline]
    fn argument(&mut self, major: u8) -> Read<u64> {
        let Some((&first, rest)) = self.rest.split_first() else {
            return Err(damaged("it ends too early"));
        };
        if first >> 5 != major {
            return Err(damaged("an item of another type"));
        }
        self.rest = rest;
        match first & 0x1f {
            short @ 0..=23 => Ok(u64::from(short)),
            24 => self.big_endian::<1>(),
            25 => self.big_endian::<2>(),
            26 => self.big_endian::<4>(),
            27 => self.big_endian::<8>(),
            _ => Err(damaged("an item of indefinite length")),
        }
    }

    #[inline]
    fn big_endian<const BYTES: usize>(&mut self) -> Read<u64> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<BYTES>() else {
            return Err(damaged("it ends too early"));
        };
        self.rest = rest;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    #[inline]
    fn string(&mut self, major: u8) -> Read<&'a [u8]> {
        let len = usize::try_from(self.argument(major)?).unwrap_or(usize::MAX);
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(damaged("it ends too early"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub(super) fn number(&mut self) -> Read<u64> {
        self.argument(NUMBER)
    }

    /// A number of 32 bits.
    #[inline]
    pub(super) fn short(&mut self) -> Read<u32> {
        u32::try_from(self.number()?).map_err(|_| damaged("a number is too large"))
    }

    #[inline]
    pub(super) fn bytes(&mut self) -> Read<&'a [u8]> {
        self.string(BYTES)
    }

    /// Bytes, or null.
    #[inline]
    pub(super) fn optional(&mut self) -> Read<Option<&'a [u8]>> {
        if self.null() {
            Ok(None)
        } else {
            self.bytes().map(Some)
        }
    }

    pub(super) fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.string(TEXT)?).map_err(|_| damaged("text that is not UTF-8"))
    }

    pub(super) fn boolean(&mut self) -> Read<bool> {
        let (value, rest) = match self.rest.split_first() {
            Some((&FALSE, rest)) => (false, rest),
            Some((&TRUE, rest)) => (true, rest),
            _ => return Err(damaged("neither true nor false")),
        };
        self.rest = rest;
        Ok(value)
    }

    /// Takes a null, if one is next.
    #[inline]
    pub(super) fn null(&mut self) -> bool {
        let rest = self.rest.strip_prefix(&[NULL]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The begin of an array that has as many fields, or more.
    #[inline]
    pub(super) fn array(&mut self, fields: u64) -> Read<Unknown> {
        match self.argument(ARRAY)?.checked_sub(fields) {
            Some(unknown) => Ok(Unknown(unknown)),
            None => Err(damaged("array too short")),
        }
    }

    /// The begin of an array of any length.
    #[inline]
    pub(super) fn count(&mut self) -> Read<u64> {
        self.argument(ARRAY)
    }

    /// The begin of an array of pairs: how many.
    #[inline]
    pub(super) fn pairs(&mut self) -> Read<u64> {
        let count = self.argument(ARRAY)?;
        if count.is_multiple_of(2) {
            Ok(count / 2)
        } else {
            Err(damaged("odd number of elements"))
        }
    }

    /// Steps over an item of any kind.
    pub(super) fn skip(&mut self) -> Read<()> {
        if self.null() {
            return Ok(());
        }
        let mut decoder = Decoder::new(self.rest);
        decoder
            .skip()
            .map_err(|_| damaged("an item that cannot be stepped over"))?;
        match self.rest.get(decoder.position()..) {
            Some(rest) => self.rest = rest,
            None => return Err(damaged("it ends too early")),
        }
        Ok(())
    }

    /// Steps over the fields of an array that are unknown here.
    #[inline]
    pub(super) fn close(&mut self, unknown: Unknown) -> Read<()> {
        for _ in 0..unknown.0 {
            self.skip()?;
        }
        Ok(())
    }

    /// Nothing follows.
    #[inline]
    pub(super) fn end(&self) -> Read<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(damaged("bytes behind the end"))
        }
    }
}

/// What a list is made of.
pub trait Element<'a>: Sized {
    #[doc(hidden)]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

/// A list in an encoded summary, read as it is gone through.
#[derive(Debug)]
pub struct List<'a, T> {
    left: u64,
    reader: Reader<'a>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        List { ..*self }
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List {
            left: 0,
            reader: Reader::new(&[]),
            of: PhantomData,
        }
    }
}

impl<T> List<'_, T> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a, T: Element<'a>> List<'a, T> {
    /// A list of `count`, which is stepped over: so all of it can be read.
    #[inline]
    pub(super) fn over(reader: &mut Reader<'a>, count: u64) -> Read<List<'a, T>> {
        let list = List {
            left: count,
            reader: *reader,
            of: PhantomData,
        };
        for _ in 0..count {
            T::read(reader)?;
        }
        Ok(list)
    }
}

impl<'a, T: Element<'a>> Iterator for List<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        T::read(&mut self.reader).ok()
    }
}

impl<'a> Element<'a> for &'a [u8] {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Read<Self> {
        reader.bytes()
    }
}
