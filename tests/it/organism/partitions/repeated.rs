//! Repeated keys in an organism whose threads several pumps share.

use crate::nats::Server;
use crate::organism::House;
use crate::organism::repeated_keys::{CONFIG, first_results, furnish, send_all};

#[test]
fn a_repeated_key_gets_every_kind_of_result_on_every_partition() {
    let server = Server::start();
    let address = server.address();
    let config = format!(
        "{CONFIG}\n[journal]\nstore = \"jetstream\"\ndurability = \"synced\"\npartitions = 4\n\n\
         [nats]\nurl = \"{address}\"\n"
    );
    let house = House::settled(&config);
    furnish(&house);
    let running = super::run(&house, "0,1,2,3");
    let first = first_results(&house);
    assert_eq!(send_all(&house), first);
    assert_eq!(running.stop(), Some(0));
    let running = super::run(&house, "0,1,2,3");
    assert_eq!(send_all(&house), first, "after a restart");
    assert_eq!(running.stop(), Some(0));
}
