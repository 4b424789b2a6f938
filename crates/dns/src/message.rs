//! Questions and answers on the wire (RFC 1035 4). The crate hickory-proto reads and writes what they are made of.
//!
//! Its `Message` is not used to read: it gives room to as many questions as a header claims, decodes records that nobody asked for, and refuses the whole
//! when one of those is wrong. Here every section is walked once, and only records of the wanted kind, aliases and the SOA are decoded.
//!
//! Invariant: what is taken from an answer belongs to the chain of names that begins with the one that was asked for.

use std::sync::Arc;

use hickory_proto::{
    op::{Edns, Header, HeaderCounts, Message, MessageType, OpCode, Query},
    rr::{self, DNSClass, RData, RecordType, rdata::SOA},
    serialize::binary::{BinDecodable, BinDecoder, DecodeError, Restrict},
};

use crate::{
    api::{ALIASES_MAX, Failure, Kind, Mx, RECORDS_MAX, Records, Tlsa, UDP_PAYLOAD_BYTES},
    mutants::broken,
    name::Name,
    random::Random,
};

/// Labels and pointers of a name that are followed. A name of 255 octets has at most 127 labels, and needs no more pointers than labels.
const NAME_STEPS_MAX: usize = 256;

/// The name of a question as it is sent, which may have upper case.
pub(crate) type Asked = rr::Name;

/// A name for a question; with random numbers, its case is mixed.
pub(crate) fn asked(name: &Name, random: Option<&mut Random>) -> Asked {
    let bits = random.map(Random::bits).unwrap_or_default();
    let mut at = 0_usize;
    let mut mixed = |octet: &u8| {
        at += 1;
        let upper = bits
            .get(at / 8)
            .is_some_and(|bits| bits & (1 << (at % 8)) != 0);
        if upper {
            octet.to_ascii_uppercase()
        } else {
            *octet
        }
    };
    let labels: Vec<Vec<u8>> = name
        .labels()
        .map(|label| label.iter().map(&mut mixed).collect())
        .collect();
    Asked::from_labels(labels).expect("labels of a name")
}

/// How a question is put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// With an OPT record (RFC 6891).
    pub(crate) edns: bool,
    /// With the bit AD: "the client understands and is interested in the AD bit" (RFC 6840 5.7).
    pub(crate) authentic: bool,
}

/// A question, with recursion desired.
pub(crate) fn question(id: u16, name: &Asked, kind: Kind, manner: Manner) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.metadata.authentic_data = manner.authentic;
    message.add_query(Query::query(name.clone(), record_type(kind)));
    if manner.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_PAYLOAD_BYTES).set_version(0);
        message.set_edns(edns);
    }
    message.to_vec().expect("one question and OPT always fit")
}

fn record_type(kind: Kind) -> RecordType {
    match kind {
        Kind::A => RecordType::A,
        Kind::Aaaa => RecordType::AAAA,
        Kind::Cname => RecordType::CNAME,
        Kind::Mx => RecordType::MX,
        Kind::Ptr => RecordType::PTR,
        Kind::Tlsa => RecordType::TLSA,
        Kind::Txt => RecordType::TXT,
    }
}

/// The head of an answer: header and question.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: u16,
    pub(crate) truncated: bool,
    authentic: bool,
    /// The lower four bits of the response code.
    code: u8,
    question: Option<Query>,
    counts: HeaderCounts,
    /// Where the records begin.
    end: usize,
}

/// Whether an answer belongs to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Exact,
    /// But for the case of letters.
    OtherCase,
    No,
}

impl Head {
    /// Of an answer to at most one question. `None`: it is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes);
        let Header { metadata, counts } = Header::read(&mut reader.decoder).ok()?;
        let is_answer =
            metadata.message_type == MessageType::Response && metadata.op_code == OpCode::Query;
        if !is_answer || counts.queries > 1 {
            return None;
        }
        let question = match counts.queries {
            0 => None,
            _ => {
                reader.look_ahead(0).ok()?;
                Some(Query::read(&mut reader.decoder).ok()?)
            }
        };
        Some(Head {
            id: metadata.id,
            truncated: metadata.truncation,
            authentic: metadata.authentic_data,
            code: metadata.response_code.low(),
            question,
            counts,
            end: reader.decoder.index(),
        })
    }

    /// RFC 5452 9.1: an answer is taken when its question is the one that was asked.
    pub(crate) fn matches(&self, name: &Asked, kind: Kind) -> Match {
        if broken("question-not-checked") {
            return Match::Exact;
        }
        match &self.question {
            Some(question)
                if question.query_class != DNSClass::IN
                    || question.query_type != record_type(kind) =>
            {
                Match::No
            }
            Some(question)
                if question.name.eq_case(name)
                    || broken("case-not-checked") && question.name == *name =>
            {
                Match::Exact
            }
            Some(question) if question.name == *name => Match::OtherCase,
            // Some servers leave the question out when they refuse to answer it, or cannot read it.
            None if !matches!(self.code, 0 | 3) => Match::Exact,
            _ => Match::No,
        }
    }

    /// FORMERR: what a server says that does not know EDNS (RFC 6891 7).
    pub(crate) fn is_format_error(&self) -> bool {
        self.code == 1
    }
}

/// What an answer says about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Names that the one that was asked for leads to, one after the other.
    pub(crate) aliases: Vec<Name>,
    pub(crate) end: End,
    /// Seconds for which it holds. 0: it must not be kept.
    pub(crate) ttl: u32,
    pub(crate) authentic: bool,
}

/// What is said of the last name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Records(Arc<Records>),
    NoName,
    NoData,
    /// Nothing: it is to be asked for.
    Open,
}

/// Reads what follows the head of a matching answer.
pub(crate) fn read(bytes: &[u8], head: &Head, name: &Name, kind: Kind) -> Result<Reading, Failure> {
    let not_there = match head.code {
        0 => false,
        3 => true,
        2 => return Err(Failure::ServFail),
        5 => return Err(Failure::Refused),
        code => return Err(Failure::Code(code.into())),
    };
    let mut reader = Reader::new(bytes);
    reader.skip(head.end)?;
    let mut records = Vec::new();
    for _ in 0..head.counts.answers {
        let record = reader.record()?;
        if !record.is_in || (record.kind != record_type(kind) && record.kind != RecordType::CNAME) {
            reader.skip(record.length.into())?;
            continue;
        }
        if records.len() == RECORDS_MAX {
            return Err(Failure::TooLarge);
        }
        let data = reader.data(&record)?;
        records.push((record.owner, record.ttl, data));
    }
    let mut reading = chain(name, kind, &records, head.authentic)?;
    let last = reading.aliases.last().unwrap_or(name);
    let (mut soa, mut referral) = (None, false);
    for _ in 0..head.counts.authorities {
        let record = reader.record()?;
        let is_above = last.is_within(&record.owner) || broken("soa-of-another-zone");
        if record.is_in && record.kind == RecordType::SOA && is_above && soa.is_none() {
            if let RData::SOA(SOA { minimum, .. }) = reader.data(&record)? {
                // RFC 2308 5: "the minimum of the MINIMUM field of the SOA record and the TTL of the SOA itself"
                soa = Some(record.ttl.min(whole(minimum)));
            }
        } else {
            referral |= record.kind == RecordType::NS;
            reader.skip(record.length.into())?;
        }
    }
    for _ in 0..head.counts.additionals {
        let record = reader.record()?;
        reader.skip(record.length.into())?;
        // RFC 6891 6.1.3: the upper eight bits of the response code.
        let upper = record.ttl_as_sent >> 24;
        if record.kind == RecordType::OPT && upper > 0 && !broken("upper-code-ignored") {
            let code = u16::try_from(upper << 4).unwrap_or(u16::MAX) | u16::from(head.code);
            return Err(Failure::Code(code));
        }
    }
    if matches!(reading.end, End::Records(_)) {
        return if not_there {
            Err(Failure::Malformed)
        } else {
            Ok(reading)
        };
    }
    if reading.aliases.len() == ALIASES_MAX {
        // Whatever is said is perhaps said of a later one.
        return Ok(reading);
    }
    // RFC 6604 3: the response code is about the last name of the chain.
    if not_there {
        reading.end = End::NoName;
    } else if soa.is_some() {
        reading.end = End::NoData;
    } else if !reading.aliases.is_empty() {
        return Ok(reading);
    } else if referral && !broken("referral-is-no-data") {
        return Err(Failure::NotRecursive);
    } else {
        reading.end = End::NoData;
    }
    // RFC 2308 5: without a SOA record it "SHOULD NOT be cached".
    reading.ttl = reading.ttl.min(soa.unwrap_or(0));
    Ok(reading)
}

/// Follows the aliases of an answer as far as they lead. Records of other names are left where they are.
fn chain(
    name: &Name,
    kind: Kind,
    records: &[(Name, u32, RData)],
    authentic: bool,
) -> Result<Reading, Failure> {
    let mut reading = Reading {
        aliases: Vec::new(),
        end: End::Open,
        ttl: u32::MAX,
        authentic,
    };
    loop {
        let at = reading.aliases.last().unwrap_or(name);
        let here = || {
            records
                .iter()
                .filter(|(owner, ..)| owner == at || broken("other-names-taken"))
        };
        let wanted: Vec<&RData> = here()
            .map(|(_, _, data)| data)
            .filter(|data| data.record_type() == record_type(kind))
            .collect();
        if !wanted.is_empty() {
            let ttls = here()
                .filter(|(_, _, data)| data.record_type() == record_type(kind))
                .map(|(_, ttl, _)| *ttl);
            reading.ttl = ttls.fold(reading.ttl, u32::min);
            reading.end = End::Records(Arc::new(collect(kind, &wanted)?));
            return Ok(reading);
        }
        let alias = here().find_map(|(_, ttl, data)| match data {
            RData::CNAME(target) => Some((*ttl, &target.0)),
            _ => None,
        });
        match alias {
            Some((ttl, target)) if reading.aliases.len() < ALIASES_MAX => {
                reading.ttl = reading.ttl.min(ttl);
                reading.aliases.push(ours(target)?);
            }
            _ => return Ok(reading),
        }
    }
}

fn collect(kind: Kind, data: &[&RData]) -> Result<Records, Failure> {
    fn all<T>(
        data: &[&RData],
        take: impl Fn(&RData) -> Option<Result<T, Failure>>,
    ) -> Result<Vec<T>, Failure> {
        data.iter().filter_map(|data| take(data)).collect()
    }
    Ok(match kind {
        Kind::A => Records::A(all(data, |data| match data {
            RData::A(address) => Some(Ok(address.0)),
            _ => None,
        })?),
        Kind::Aaaa => Records::Aaaa(all(data, |data| match data {
            RData::AAAA(address) => Some(Ok(address.0)),
            _ => None,
        })?),
        Kind::Cname => Records::Cname(all(data, |data| match data {
            RData::CNAME(target) => Some(ours(&target.0)),
            _ => None,
        })?),
        Kind::Mx => Records::Mx(all(data, |data| match data {
            RData::MX(mx) => Some(ours(&mx.exchange).map(|exchange| Mx {
                preference: mx.preference,
                exchange,
            })),
            _ => None,
        })?),
        Kind::Ptr => Records::Ptr(all(data, |data| match data {
            RData::PTR(host) => Some(ours(&host.0)),
            _ => None,
        })?),
        Kind::Tlsa => Records::Tlsa(all(data, |data| match data {
            RData::TLSA(tlsa) => Some(Ok(Tlsa {
                usage: tlsa.cert_usage.into(),
                selector: tlsa.selector.into(),
                matching: tlsa.matching.into(),
                data: tlsa.cert_data.as_slice().into(),
            })),
            _ => None,
        })?),
        Kind::Txt => Records::Txt(all(data, |data| match data {
            RData::TXT(text) => Some(Ok(text.txt_data.concat().into())),
            _ => None,
        })?),
    })
}

fn ours(name: &rr::Name) -> Result<Name, Failure> {
    Name::from_labels(name.iter()).map_err(|_| Failure::Malformed)
}

/// RFC 2181 8: "treat TTL values received with the most significant bit set as if the entire value received was zero"
fn whole(seconds: u32) -> u32 {
    if i32::try_from(seconds).is_ok() {
        seconds
    } else {
        0
    }
}

/// A record without its data, which follows.
struct Record {
    owner: Name,
    kind: RecordType,
    is_in: bool,
    ttl_as_sent: u32,
    ttl: u32,
    length: u16,
}

/// A place in a message.
struct Reader<'b> {
    bytes: &'b [u8],
    decoder: BinDecoder<'b>,
}

impl From<DecodeError> for Failure {
    fn from(_: DecodeError) -> Self {
        Failure::Malformed
    }
}

impl<'b> Reader<'b> {
    fn new(bytes: &'b [u8]) -> Self {
        Reader {
            bytes,
            decoder: BinDecoder::new(bytes),
        }
    }

    fn skip(&mut self, octets: usize) -> Result<(), Failure> {
        self.decoder.read_slice(octets)?;
        Ok(())
    }

    fn number(&mut self) -> Result<u16, Failure> {
        Ok(self.decoder.read_u16()?.unverified())
    }

    fn record(&mut self) -> Result<Record, Failure> {
        self.look_ahead(0)?;
        let owner = ours(&rr::Name::read(&mut self.decoder)?)?;
        let kind = RecordType::read(&mut self.decoder)?;
        let is_in = DNSClass::read(&mut self.decoder)? == DNSClass::IN;
        let ttl_as_sent = self.decoder.read_u32()?.unverified();
        let length = self.number()?;
        if usize::from(length) > self.decoder.len() {
            return Err(Failure::Malformed);
        }
        Ok(Record {
            owner,
            kind,
            is_in,
            ttl_as_sent,
            ttl: whole(ttl_as_sent),
            length,
        })
    }

    fn data(&mut self, record: &Record) -> Result<RData, Failure> {
        match record.kind {
            RecordType::MX => self.look_ahead(2)?,
            RecordType::CNAME | RecordType::PTR | RecordType::SOA => self.look_ahead(0)?,
            _ => {}
        }
        Ok(RData::read(
            &mut self.decoder,
            record.kind,
            Restrict::new(record.length),
        )?)
    }

    /// Whether the name that begins so many octets from here is one of few pointers. Thousands of records whose names each lead over thousands of pointers
    /// fit into one message, and decoding them would take seconds.
    fn look_ahead(&self, octets: usize) -> Result<(), Failure> {
        let mut at = self.decoder.index() + octets;
        for _ in 0..NAME_STEPS_MAX {
            match (self.bytes.get(at), self.bytes.get(at + 1)) {
                (Some(upper), Some(lower)) if upper & 0xC0 == 0xC0 => {
                    at = usize::from(upper & 0x3F) << 8 | usize::from(*lower);
                }
                (Some(length), _) if *length > 0 => at += 1 + usize::from(*length),
                // Its end; or the end of the message, which the decoder finds.
                _ => return Ok(()),
            }
        }
        Err(Failure::Malformed)
    }
}
