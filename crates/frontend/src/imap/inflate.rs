//! Reads compressed input (RFC 4978), a piece at a time and no faster than is good.
//!
//! Invariants:
//! - What is held is what was read from the socket, what the client may still refer to (32 KiB at the most, as much as it has sent if that is less),
//!   and while a block is being read its tables. At the end of what the client has flushed only the second is left.
//! - A piece is no longer than that, whatever the client sends; more is inflated when it was dealt with.
//! - A client does not make more of its bytes than [`Limits::inflate_ratio_max`] allows: a few bytes can stand for a thousand times as many, and
//!   each is a byte that has to be looked at. Messages do not count, for they are mail, and what is stored has limits of its own.

use miniz_oxide::inflate::{
    TINFLStatus,
    core::{BlockBoundaryState, DecompressorOxide, decompress, inflate_flags},
};

use super::limits::Limits;

/// How far back a client may refer (RFC 1951, 2).
const WINDOW_BYTES_MAX: usize = 32 * 1024;

/// What is allocated at first: more than most clients send before they are idle.
const WINDOW_BYTES_MIN: usize = 1024;

/// What the decompressor is told: raw deflate of which there is more, and to say when a block is at its end.
const FLAGS: u32 =
    inflate_flags::TINFL_FLAG_HAS_MORE_INPUT | inflate_flags::TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;

/// Compressed input.
pub(super) struct Inflater {
    /// What was not looked at.
    input: Vec<u8>,
    at: usize,
    /// What was inflated last, a ring; its size is a power of two.
    window: Vec<u8>,
    pos: usize,
    state: InflateState,
    ratio_max: u64,
    slack_bytes: u64,
    /// How many bytes may be inflated before the client has to send more.
    credit: u64,
}

enum InflateState {
    /// Between two blocks, with nothing to read.
    Between(BlockBoundaryState),
    /// `true`: at the end of a block.
    Within(Box<DecompressorOxide>, bool),
    /// The client has ended its stream.
    Ended,
    /// The client's stream was no deflate from here on.
    Broken,
}

/// Why a client's input is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is not deflate, or goes on after its end.
    Malformed,
    /// So little stands for so much.
    Bomb,
}

impl Inflater {
    pub(super) fn new(limits: &Limits) -> Inflater {
        Inflater {
            input: Vec::new(),
            at: 0,
            window: Vec::new(),
            pos: 0,
            state: InflateState::Between(BlockBoundaryState::default()),
            ratio_max: limits.inflate_ratio_max,
            slack_bytes: limits.inflate_slack_bytes,
            credit: limits.inflate_slack_bytes,
        }
    }

    /// Takes what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..std::mem::take(&mut self.at));
        self.input.extend_from_slice(bytes);
        // Not saved up: an hour of commands does not pay for a bomb.
        let earned = self.ratio_max.saturating_mul(bytes.len() as u64);
        self.credit = self.credit.min(self.slack_bytes).saturating_add(earned);
    }

    /// So many bytes of the last piece do not count.
    pub(super) fn refund(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_add(bytes as u64);
    }

    /// The next piece; `None` when more has to be read.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Refused> {
        loop {
            if self.at == self.input.len() && !matches!(self.state, InflateState::Broken) {
                self.rest();
                return Ok(None);
            }
            let written = self.step()?;
            if written > 0 {
                return Ok(Some(&self.window[self.pos - written..self.pos]));
            }
        }
    }

    /// Inflates until something is written, a block ends, or there is nothing to read. How much was written, behind what was before.
    fn step(&mut self) -> Result<usize, Refused> {
        if let InflateState::Between(state) = &self.state {
            let made = Box::new(DecompressorOxide::from_block_boundary_state(state));
            self.state = InflateState::Within(made, true);
        }
        let InflateState::Within(decompressor, at_end) = &mut self.state else {
            return Err(Refused::Malformed);
        };
        if self.pos == self.window.len() {
            if self.window.len() < WINDOW_BYTES_MAX {
                let len = (2 * self.window.len()).max(WINDOW_BYTES_MIN);
                self.window.resize(len, 0);
            } else {
                self.pos = 0;
            }
        }
        let input = &self.input[self.at..];
        let (status, read, written) =
            decompress(decompressor, input, &mut self.window, self.pos, FLAGS);
        self.at += read;
        self.pos += written;
        *at_end = status == TINFLStatus::BlockBoundary;
        match status {
            TINFLStatus::BlockBoundary => {}
            TINFLStatus::Done => self.state = InflateState::Ended,
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {}
            // What came before counts, however it was cut; next time it is refused.
            _ => self.state = InflateState::Broken,
        }
        let left = self.credit.checked_sub(written as u64);
        self.credit = left.ok_or(Refused::Bomb)?;
        Ok(written)
    }

    /// Gives up what an idle session need not hold.
    fn rest(&mut self) {
        self.input = Vec::new();
        self.at = 0;
        // Between two blocks the tables mean nothing: each block has its own.
        if let InflateState::Within(decompressor, true) = &self.state
            && let Some(state) = decompressor.block_boundary_state()
        {
            self.state = InflateState::Between(state);
        }
    }

    /// The client ends its compression here: what was read beyond its end, which is not compressed; `None` when the end has to be read first.
    ///
    /// A client ends its stream, or goes on without compression when it has flushed it. Which of the two shows at the end of a block: what
    /// goes on there begins with the head of an empty block, which is no begin of a command.
    pub(super) fn end(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        /// First bytes of a stored block that is flushed with, of one that ends the stream, and of a coded one that does.
        const HEADS: [u8; 3] = [0b000, 0b001, 0b011];
        loop {
            let flushed = match &self.state {
                InflateState::Ended => return Ok(Some(self.input.split_off(self.at))),
                InflateState::Broken => return Err(Refused::Malformed),
                InflateState::Between(state) => state.num_bits == 0,
                InflateState::Within(decompressor, at_end) => {
                    let state = decompressor.block_boundary_state();
                    *at_end && state.is_some_and(|state| state.num_bits == 0)
                }
            };
            match self.input.get(self.at) {
                None => {
                    self.rest();
                    return Ok(None);
                }
                Some(head) if flushed && !HEADS.contains(head) => {
                    return Ok(Some(self.input.split_off(self.at)));
                }
                Some(_) => {}
            }
            // It said that it compresses no more.
            if self.step()? > 0 {
                return Err(Refused::Malformed);
            }
        }
    }

    /// Bytes of memory held.
    pub(super) fn buffered_bytes(&self) -> usize {
        let tables = match self.state {
            InflateState::Within(..) => size_of::<DecompressorOxide>(),
            InflateState::Between(_) | InflateState::Ended | InflateState::Broken => 0,
        };
        self.input.capacity() + self.window.capacity() + tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::deflate::core::{
        CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
    };

    /// A client: one compressor for all it says, as zlib has it.
    struct Client(Box<CompressorOxide>);

    impl Client {
        fn new() -> Client {
            let flags = create_comp_flags_from_zip_params(6, 0, 0);
            Client(Box::new(CompressorOxide::new(flags)))
        }

        fn says(&mut self, bytes: &[u8], flush: TDEFLFlush) -> Vec<u8> {
            let mut out = Vec::new();
            compress_to_output(&mut self.0, bytes, flush, |made| {
                out.extend_from_slice(made);
                true
            });
            out
        }
    }

    fn inflater() -> Inflater {
        Inflater::new(&Limits::default())
    }

    /// All that can be inflated, and the longest piece.
    fn drain(inflater: &mut Inflater) -> Result<(Vec<u8>, usize), Refused> {
        let (mut all, mut longest) = (Vec::new(), 0);
        while let Some(piece) = inflater.next()? {
            all.extend_from_slice(piece);
            longest = longest.max(piece.len());
        }
        Ok((all, longest))
    }

    fn commands(count: usize) -> Vec<u8> {
        (0..count)
            .flat_map(|n| format!("a{n} UID FETCH {} (FLAGS BODY[{n}])\r\n", n * 64).into_bytes())
            .collect()
    }

    #[test]
    fn whatever_is_flushed_is_there_however_it_is_cut() {
        for flush in [TDEFLFlush::Sync, TDEFLFlush::Full] {
            for cut in [1, 7, 4096] {
                let (mut client, mut inflater) = (Client::new(), inflater());
                for count in [1, 3, 2000, 1, 5000, 2] {
                    let text = commands(count);
                    let mut heard = Vec::new();
                    for piece in client.says(&text, flush).chunks(cut) {
                        inflater.push(piece);
                        let (piece, longest) = drain(&mut inflater).unwrap();
                        assert!(longest <= WINDOW_BYTES_MAX);
                        heard.extend_from_slice(&piece);
                    }
                    assert_eq!(heard, text);
                }
            }
        }
    }

    /// At rest a session holds what its client may refer to: as much as it has sent, and no more than 32 KiB.
    #[test]
    fn at_rest_there_are_no_tables() {
        let (mut client, mut inflater) = (Client::new(), inflater());
        for (count, expected) in [(1, 1024), (20, 1024), (40, 4096), (5000, WINDOW_BYTES_MAX)] {
            inflater.push(&client.says(&commands(count), TDEFLFlush::Sync));
            drain(&mut inflater).unwrap();
            assert_eq!(inflater.buffered_bytes(), expected, "{count}");
        }
        // In the middle of a block they are needed.
        let said = client.says(&commands(3), TDEFLFlush::Sync);
        inflater.push(&said[..said.len() / 2]);
        drain(&mut inflater).unwrap();
        assert!(inflater.buffered_bytes() > WINDOW_BYTES_MAX + 8000);
    }

    #[test]
    fn what_comes_after_the_end_is_told_apart() {
        let mut client = Client::new();
        let mut said = client.says(b"a UNAUTHENTICATE\r\n", TDEFLFlush::Finish);
        said.extend_from_slice(b"b NOOP\r\n");
        let mut inflater = inflater();
        inflater.push(&said);
        assert_eq!(inflater.next(), Ok(Some(&b"a UNAUTHENTICATE\r\n"[..])));
        assert_eq!(inflater.end(), Ok(Some(b"b NOOP\r\n".to_vec())));
        let mut inflater = self::inflater();
        inflater.push(&said);
        assert_eq!(drain(&mut inflater), Err(Refused::Malformed));
    }

    /// Found by fuzzing: what ends the stream may be read later than the command.
    #[test]
    fn an_end_is_found_however_it_is_cut() {
        const COMMAND: &[u8] = b"a UNAUTHENTICATE\r\n";
        let check = |parts: &[(&[u8], TDEFLFlush)], ended: bool| {
            let mut client = Client::new();
            let mut stream = Vec::new();
            for (part, flush) in parts {
                stream.extend(client.says(part, *flush));
            }
            for rest in [&b"b NOOP\r\n"[..], b""] {
                let said = [&stream, rest].concat();
                for cut in 1..=said.len() {
                    let mut inflater = inflater();
                    let (mut heard, mut after) = (Vec::new(), None);
                    for piece in said.chunks(cut) {
                        if let Some(after) = &mut after {
                            Vec::extend_from_slice(after, piece);
                            continue;
                        }
                        inflater.push(piece);
                        while heard.len() < COMMAND.len()
                            && let Some(piece) = inflater.next().unwrap()
                        {
                            heard.extend_from_slice(piece);
                        }
                        if heard == COMMAND {
                            after = inflater.end().unwrap();
                        }
                    }
                    assert_eq!(heard, COMMAND, "{cut}");
                    // One that was only flushed ends where something else comes.
                    let found = after.is_some();
                    assert!(found == (ended || !rest.is_empty()), "{cut}");
                    assert_eq!(after.unwrap_or_default(), rest, "{cut}");
                }
            }
        };
        let (sync, finish) = (TDEFLFlush::Sync, TDEFLFlush::Finish);
        check(&[(COMMAND, finish)], true);
        check(&[(COMMAND, sync), (b"", finish)], true);
        check(
            &[(COMMAND, sync), (b"", TDEFLFlush::Full), (b"", finish)],
            true,
        );
        check(&[(COMMAND, sync)], false);
        // What it says compressed after that is not taken for anything.
        let mut client = Client::new();
        let mut inflater = inflater();
        inflater.push(&client.says(COMMAND, sync));
        assert_eq!(inflater.next(), Ok(Some(COMMAND)));
        assert_eq!(inflater.end(), Ok(None));
        inflater.push(&client.says(b"b NOOP\r\n", finish));
        assert!(!matches!(inflater.end(), Ok(None)));
    }

    /// With a bit turned at any place a stream is refused or means something else, and either does not hang on where it was cut.
    #[test]
    fn what_is_wrong_is_wrong_however_it_is_cut() {
        let mut client = Client::new();
        let mut said = client.says(&commands(30), TDEFLFlush::Sync);
        said.extend(client.says(&commands(3), TDEFLFlush::Finish));
        let outcome = |said: &[u8], cut: usize| {
            let (mut inflater, mut heard) = (inflater(), Vec::new());
            for piece in said.chunks(cut) {
                inflater.push(piece);
                loop {
                    match inflater.next() {
                        Ok(None) => break,
                        Ok(Some(piece)) => heard.extend_from_slice(piece),
                        Err(refused) => return (heard, Some(refused)),
                    }
                }
                assert!(inflater.buffered_bytes() <= 2 * WINDOW_BYTES_MAX + 16 * 1024);
            }
            (heard, None)
        };
        let (mut refused, mut taken) = (0, 0);
        for bit in 0..said.len() * 8 {
            said[bit / 8] ^= 1 << (bit % 8);
            let whole = outcome(&said, said.len());
            for cut in [1, 13] {
                assert_eq!(outcome(&said, cut), whole, "{bit} {cut}");
            }
            *(if whole.1.is_some() {
                &mut refused
            } else {
                &mut taken
            }) += 1;
            said[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(refused > 100 && taken > 100, "{refused} {taken}");
    }

    #[test]
    fn noise_is_refused() {
        let mut inflater = inflater();
        inflater.push(b"a1 NOOP\r\n");
        assert_eq!(drain(&mut inflater), Err(Refused::Malformed));
    }

    /// BAD_INPUTS, row 21.
    #[test]
    fn a_bomb_is_seen_after_a_few_bytes() {
        let bomb = Client::new().says(&vec![b' '; 10_000_000], TDEFLFlush::Sync);
        assert!(bomb.len() < 12_000);
        let limits = Limits::default();
        let mut inflater = Inflater::new(&limits);
        let mut inflated = 0;
        let mut read = 0;
        let refused = bomb.chunks(1024).find_map(|chunk| {
            read += chunk.len() as u64;
            inflater.push(chunk);
            loop {
                match inflater.next() {
                    Ok(None) => return None,
                    Ok(Some(piece)) => inflated += piece.len() as u64,
                    Err(refused) => return Some(refused),
                }
            }
        });
        assert_eq!(refused, Some(Refused::Bomb));
        assert!(inflated <= limits.inflate_slack_bytes + limits.inflate_ratio_max * read);
        assert!(inflater.buffered_bytes() <= 16 * 1024 + 2 * WINDOW_BYTES_MAX);
    }

    /// However much was said before.
    #[test]
    fn credit_is_not_saved_up() {
        let (mut client, mut inflater) = (Client::new(), inflater());
        let mut state = 1u32;
        let noise: Vec<u8> = (0..1_000_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        for piece in client.says(&noise, TDEFLFlush::Sync).chunks(16 * 1024) {
            inflater.push(piece);
            drain(&mut inflater).unwrap();
        }
        let bomb = client.says(&vec![b' '; 10_000_000], TDEFLFlush::Sync);
        let refused = bomb.chunks(1024).find_map(|chunk| {
            inflater.push(chunk);
            drain(&mut inflater).err()
        });
        assert_eq!(refused, Some(Refused::Bomb));
    }

    /// A message of which there is little to say is a message still.
    #[test]
    fn what_is_refunded_does_not_count() {
        let said = Client::new().says(&vec![b'A'; 5_000_000], TDEFLFlush::Sync);
        let mut inflater = inflater();
        let mut inflated = 0;
        for chunk in said.chunks(16 * 1024) {
            inflater.push(chunk);
            while let Some(piece) = inflater.next().unwrap() {
                let len = piece.len();
                inflated += len;
                inflater.refund(len);
            }
        }
        assert_eq!(inflated, 5_000_000);
    }
}
