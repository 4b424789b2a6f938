//! The text of messages: line ends, dots, line lengths, in a stream.
