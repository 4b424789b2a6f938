//! What the simulated servers know, and how they answer: as recursive servers do that have looked it up.

use std::collections::BTreeMap;

use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, ResponseCode},
    rr::{Name, RData, Record, RecordType},
};

/// Records by their owner in lower case, in the order of the text.
#[derive(Clone, Default)]
pub struct Zone(BTreeMap<String, Vec<(u32, RData)>>);

fn lower(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_lowercase()
}

/// `OWNER TTL TYPE DATA`.
pub fn record(line: &str) -> Record {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().expect("a word");
    let owner = Name::from_ascii(word().trim_end_matches('.')).unwrap();
    let ttl = word().parse().unwrap();
    let kind = word().parse::<RecordType>().unwrap();
    Record::from_rdata(owner, ttl, RData::try_from_str(kind, word()).unwrap())
}

impl Zone {
    pub fn new(text: &str) -> Self {
        let mut zone = Zone::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let record = record(line);
            let of_owner = zone.0.entry(lower(&record.name)).or_default();
            of_owner.push((record.ttl, record.data));
        }
        zone
    }

    pub fn of(&self, owner: &str, kind: RecordType) -> Vec<(u32, RData)> {
        let of_owner = self.0.get(owner).into_iter().flatten();
        let wanted = of_owner.filter(|(_, data)| data.record_type() == kind);
        wanted.cloned().collect()
    }

    /// There is a name also where only names below it have records (RFC 4592 2.2.2).
    pub fn exists(&self, owner: &str) -> bool {
        let below = format!(".{owner}");
        self.0
            .keys()
            .any(|name| name == owner || name.ends_with(&below))
    }

    /// The SOA record of the innermost zone around a name.
    fn soa(&self, owner: &str) -> Option<Record> {
        let mut at = owner;
        loop {
            if let Some((ttl, data)) = self.of(at, RecordType::SOA).pop() {
                return Some(Record::from_rdata(Name::from_ascii(at).unwrap(), ttl, data));
            }
            at = at.split_once('.')?.1;
        }
    }

    /// Answers a question; after so many aliases it says no more.
    pub fn answer(&self, asked: &Message, hops: usize) -> Message {
        let query = asked.queries.first().expect("a question").clone();
        let mut answer = Message::new(asked.id, MessageType::Response, OpCode::Query);
        answer.metadata.recursion_desired = true;
        answer.metadata.recursion_available = true;
        let (mut at, kind) = (lower(&query.name), query.query_type);
        answer.add_query(query);
        if asked.edns.is_some() {
            answer.set_edns(Edns::new());
        }
        // A circle ends, too.
        for hop in 0..30 {
            let wanted = self.of(&at, kind);
            let owner = Name::from_ascii(&at).unwrap();
            if !wanted.is_empty() {
                let records = wanted.into_iter();
                answer.add_answers(
                    records.map(|(ttl, data)| Record::from_rdata(owner.clone(), ttl, data)),
                );
                return answer;
            }
            let Some((ttl, data)) = self.of(&at, RecordType::CNAME).pop() else {
                break;
            };
            if let RData::CNAME(target) = &data {
                at = lower(&target.0);
            }
            answer.add_answer(Record::from_rdata(owner, ttl, data));
            if hop + 1 == hops {
                return answer;
            }
        }
        answer.add_authorities(self.soa(&at));
        if !self.exists(&at) {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        answer
    }
}
