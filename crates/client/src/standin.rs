//! Stand-in until the protocol crate has its session.
#![allow(missing_docs)]
pub mod reflex {
    use contract::*;
    #[derive(Debug)]
    pub struct ClientSession {
        two: bool,
    }
    #[derive(Debug)]
    pub enum ClientEvent<'a> {
        Reply { tag: Tag, status: Status, body_bytes: usize },
        Body { bytes: &'a [u8], end: Option<Status> },
        Hello { tag: Tag, status: Status, reply: HelloReply },
        Info { tag: Tag, info: Result<NamespaceInfo, Status> },
        Tenant { tag: Tag, status: Status, reply: TenantReply },
        Pong { tag: Tag },
        Notice(Notice),
    }
    impl ClientSession {
        pub fn v1() -> Self {
            ClientSession { two: false }
        }
        pub fn v2(_: Hello) -> Self {
            ClientSession { two: true }
        }
        pub fn greeting(&self) -> Vec<FrameHead> {
            if self.two { vec![FrameHead::new(b"hello")] } else { vec![] }
        }
        pub fn request(
            &mut self,
            _t: Tag,
            _s: u8,
            _n: Option<NamespaceId>,
            _c: Command,
            _p: &[u8],
        ) -> Result<FrameHead, Status> {
            Err(Status::Unsupported)
        }
        pub fn control(&mut self, _c: &Control) -> Result<Vec<FrameHead>, Status> {
            Err(Status::Unsupported)
        }
        pub fn next_event<'a>(
            &mut self,
            input: &mut &'a [u8],
        ) -> Result<Option<ClientEvent<'a>>, Fatal> {
            *input = &[];
            Ok(None)
        }
    }
}
