//! PREVIEW (RFC 8970) of a message whose summary has none: it was stored before there were previews, so its text is read.

use bytes::Bytes;
use whimbrel_imap::encode::FetchWriter;
use whimbrel_mime::preview::LatePreview;
use whimbrel_service::api::BlobName;

use super::{
    super::{
        blob::{Opened, Reader},
        context::Context,
    },
    next::Next,
};

/// A preview in the making.
pub(super) struct Preview {
    late: Option<LatePreview>,
    reader: Option<Reader>,
}

impl Preview {
    pub(super) fn new(cx: &Context, opened: &Opened) -> Preview {
        Preview {
            late: Some(LatePreview::new(&opened.summary, &cx.limits.mime)),
            reader: None,
        }
    }

    /// Goes on. `bytes` is what was wanted.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        writer: &mut FetchWriter,
        opened: &Opened,
        blob: BlobName,
        mut bytes: Option<Bytes>,
    ) -> Next {
        let Some(late) = &mut self.late else {
            return Next::Failed;
        };
        loop {
            let Some(reader) = &mut self.reader else {
                match late.next_range() {
                    Some(range) => self.reader = Some(Reader::new(&opened.summary, range)),
                    None => {
                        let preview = self.late.take().map(LatePreview::finish);
                        writer.preview(&mut cx.out, Some(&preview.unwrap_or_default()));
                        return Next::Done;
                    }
                }
                continue;
            };
            let piece = match bytes.take() {
                Some(bytes) if reader.took(&bytes).is_err() => return Next::Failed,
                Some(bytes) => Some(bytes),
                None => reader.prefix(&opened.prefix),
            };
            if let Some(piece) = piece {
                late.push(&piece);
            }
            match reader.call(blob) {
                Some(call) => return Next::Wants(call),
                None => self.reader = None,
            }
        }
    }
}
