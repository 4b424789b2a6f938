//! What is said to a server beside mail: by administrators, by whoever reads its figures, by its configuration, by nodes of a cluster. The first
//! byte chooses which.

/// Any input.
pub fn run(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    match which % 9 {
        0 => whimbrel_server::fuzz::admin(data),
        1 => whimbrel_server::fuzz::request(data),
        2 => whimbrel_server::fuzz::configuration(data),
        3 => whimbrel_directory::fuzz::address(data),
        4 => whimbrel_directory::fuzz::aliases(data),
        5 => whimbrel_cluster::fuzz::token(data),
        6 => whimbrel_cluster::fuzz::packs(data),
        7 => whimbrel_cluster::fuzz::join(data),
        _ => whimbrel_directory::fuzz::aliases_of_two(data),
    }
}
