//! The end-to-end tests: the real program as a child process, over real sockets.
//!
//! One program, because each one links the whole crate anew. Modules are grouped by subject.

mod support;

mod serving {
    mod access;
    mod bad_input;
    mod ether;
    mod exported;
    mod faults;
    mod interface;
    mod library;
    mod many;
    mod memory_limit;
    mod moves;
    mod nbd;
    mod nbd_tls;
    mod no_alloc;
    mod nvme_tls;
    mod overload;
    mod packets;
    mod packets_lanes;
    mod packets_path;
    mod queue;
    mod requests;
    mod strangers;
    mod tenants;
    mod tls;
    mod translated;
    mod unix_sockets;
}

mod mounting {
    mod files;
    mod kills;
    mod volume;
}

mod operating {
    mod attach;
    mod audit;
    mod carried;
    mod checked;
    mod counted;
    mod dashboard;
    mod disks;
    mod drain;
    mod drain_server;
    mod kills;
    mod listeners;
    mod live;
    mod operate;
    mod reload;
    mod remote_admin;
    mod reshape;
    mod secrets;
    mod settings;
    mod space;
    mod startup;
    mod watch;
    mod watchdog;
}

mod upgrading {
    mod numbers;
    mod nvme_upgrade;
    mod packets_upgrade;
    mod random_kills;
    mod translated_upgrade;
    mod upgrade;
    mod upgrade_kills;
}

mod measuring {
    mod bench;
    mod calibrate;
    mod demo;
    mod nbd_bench;
    mod nvme_bench;
    mod ops;
    mod recalibrate;
}

mod documented {
    mod documents;
    mod walk;
}
