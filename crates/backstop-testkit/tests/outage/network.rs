//! A network that fails between a worker and a server that knows nothing of it.

use crate::stream::Stream;
use backstop_testkit::servers::{self, Mode, Proxy};
use std::net::SocketAddr;
use std::time::Duration;

/// How long each fault lasts.
const FAULT: Duration = Duration::from_secs(2);
/// The servers that can be tried.
#[derive(Clone, Copy, Debug)]
enum Server {
    Postgres,
    Redis,
}

impl Server {
    fn addr(self) -> SocketAddr {
        match self {
            Self::Postgres => servers::postgres().addr(),
            Self::Redis => servers::redis().addr(),
        }
    }

    fn fresh_url_at(self, addr: SocketAddr) -> String {
        match self {
            Self::Postgres => servers::postgres().fresh_url_at(addr),
            Self::Redis => servers::redis().fresh_url_at(addr),
        }
    }
}

/// Lets the network go through `modes`, one after another, and mends it.
async fn check(server: Server, modes: &[Mode]) {
    let proxy = Proxy::start(server.addr()).await;
    let mut stream = Stream::start(&server.fresh_url_at(proxy.addr())).await;
    for mode in modes {
        proxy.set(*mode);
        tokio::time::sleep(FAULT / 2).await;
        let ended = stream.ended();
        tokio::time::sleep(FAULT / 2).await;
        let lets_through = !matches!(mode, Mode::Cut | Mode::HalfOpen);
        assert!(
            lets_through || stream.ended() == ended,
            "nothing was to get through"
        );
    }
    proxy.set(Mode::Pass);
    stream
        .assert_at_work_again(&format!("{server:?} after {modes:?}"))
        .await;
    stream.finish().await.assert_sound();
}

/// One reply is cut at its first byte, another within a row, another within the next one.
const RESETS: [Mode; 4] = [
    Mode::Reset { after_bytes: 1 },
    Mode::Reset { after_bytes: 700 },
    Mode::Reset { after_bytes: 3_000 },
    Mode::Reset {
        after_bytes: 20_000,
    },
];

macro_rules! cases {
    ($server:ident: $name:ident) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn is_cut_off() {
                check(Server::$server, &[Mode::Cut]).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn falls_silent() {
                check(Server::$server, &[Mode::HalfOpen]).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn breaks_off_in_its_replies() {
                check(Server::$server, &RESETS).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn is_slow() {
                check(
                    Server::$server,
                    &[Mode::Slow {
                        delay: Duration::from_millis(50),
                    }],
                )
                .await;
            }
        }
    };
}

cases!(Postgres: postgres);
cases!(Redis: redis);
