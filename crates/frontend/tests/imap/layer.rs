//! A client's side of COMPRESS=DEFLATE (RFC 4978): one compressor for all it says, as zlib has it.

use miniz_oxide::{
    deflate::core::{
        CompressorOxide, TDEFLFlush, compress_to_output, create_comp_flags_from_zip_params,
    },
    inflate::{
        TINFLStatus,
        core::{DecompressorOxide, decompress, inflate_flags},
    },
};
/// The command that a client of `World::compresses` gives by itself, and its answer.
pub(crate) const COMMAND: &[u8] = b"zz COMPRESS DEFLATE\r\n";
const ANSWER: &[u8] = b"zz OK DEFLATE is active\r\n";

/// A client's side of the compression.
pub(crate) struct Layer {
    compressor: Box<CompressorOxide>,
    decompressor: Box<DecompressorOxide>,
    window: Vec<u8>,
    pos: usize,
}

impl Layer {
    pub(crate) fn new() -> Layer {
        let flags = create_comp_flags_from_zip_params(6, 0, 0);
        Layer {
            compressor: Box::new(CompressorOxide::new(flags)),
            decompressor: Box::default(),
            window: vec![0; 32 * 1024],
            pos: 0,
        }
    }

    /// When it has logged in, a client gives the command.
    pub(crate) fn begin(said: &[u8], inbox: &mut Vec<u8>) {
        if said.ends_with(b" Logged in\r\n") {
            inbox.extend_from_slice(COMMAND);
        }
    }

    /// Takes the answer to it out of what the server said.
    pub(crate) fn begun(said: &mut Vec<u8>) -> Option<Layer> {
        let at = said.windows(ANSWER.len()).position(|w| w == ANSWER)?;
        assert!(said.ends_with(b"\r\n"), "nothing follows");
        said.truncate(at);
        Some(Layer::new())
    }

    pub(crate) fn deflate(&mut self, bytes: &[u8], flush: TDEFLFlush) -> Vec<u8> {
        let mut out = Vec::new();
        compress_to_output(&mut self.compressor, bytes, flush, |made| {
            out.extend_from_slice(made);
            true
        });
        out
    }

    /// The client sends; with UNAUTHENTICATE it ends its stream.
    pub(crate) fn send(mut self, bytes: &[u8], inbox: &mut Vec<u8>, layer: &mut Option<Layer>) {
        const END: &[u8] = b" UNAUTHENTICATE\r\n";
        match bytes.windows(END.len()).position(|w| w == END) {
            None => inbox.extend(self.deflate(bytes, TDEFLFlush::Sync)),
            Some(at) => {
                let (compressed, rest) = bytes.split_at(at + END.len());
                inbox.extend(self.deflate(compressed, TDEFLFlush::Finish));
                inbox.extend_from_slice(rest);
            }
        }
        *layer = Some(self);
    }

    /// What the server said, and what is not compressed any more, if its stream has ended.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut said = Vec::new();
        let mut at = 0;
        loop {
            let (status, read, written) = decompress(
                &mut self.decompressor,
                &bytes[at..],
                &mut self.window,
                self.pos,
                inflate_flags::TINFL_FLAG_HAS_MORE_INPUT,
            );
            at += read;
            said.extend_from_slice(&self.window[self.pos..self.pos + written]);
            self.pos = (self.pos + written) % self.window.len();
            match status {
                TINFLStatus::Done => return (said, Some(bytes[at..].to_vec())),
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput => {
                    assert_eq!(at, bytes.len());
                    return (said, None);
                }
                status => panic!("{status:?}"),
            }
        }
    }
}
