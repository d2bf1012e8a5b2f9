use super::*;
use tokio::time::timeout;

/// Long enough for anything on this machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough to believe that nothing comes.
const SILENCE: Duration = Duration::from_millis(100);

/// A server that says everything back.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = client.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    addr
}

async fn proxy() -> Proxy {
    Proxy::start(echo().await).await
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.addr()).await.expect("connected")
}

/// What comes back for `text`.
async fn say(client: &mut TcpStream, text: &str) -> io::Result<String> {
    client.write_all(text.as_bytes()).await?;
    let mut back = vec![0; text.len()];
    client.read_exact(&mut back).await?;
    Ok(String::from_utf8(back).expect("what was said"))
}

async fn answer(client: &mut TcpStream) -> io::Result<String> {
    timeout(PATIENCE, say(client, "hello"))
        .await
        .expect("an answer or an error")
}

async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(SILENCE, say(client, "hello")).await.is_err()
}

#[tokio::test]
async fn what_passes_comes_back() {
    let proxy = proxy().await;
    let mut client = connect(&proxy).await;
    assert_eq!(answer(&mut client).await.expect("passed"), "hello");
    let long = "x".repeat(BUFFER_BYTES * 3);
    assert_eq!(say(&mut client, &long).await.expect("passed"), long);
}

#[tokio::test]
async fn a_cut_closes_refuses_and_mends() {
    let proxy = proxy().await;
    let mut client = connect(&proxy).await;
    answer(&mut client).await.expect("passed");
    proxy.set(Mode::Cut);
    assert!(answer(&mut client).await.is_err());
    let refused = TcpStream::connect(proxy.addr())
        .await
        .expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    proxy.set(Mode::Pass);
    let mended = async {
        loop {
            match TcpStream::connect(proxy.addr()).await {
                Ok(client) => break client,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let mut client = timeout(PATIENCE, mended).await.expect("it listens again");
    answer(&mut client).await.expect("passed");
}

#[tokio::test]
async fn a_half_open_connection_stays_silent_for_ever() {
    let proxy = proxy().await;
    let mut before = connect(&proxy).await;
    answer(&mut before).await.expect("passed");
    proxy.set(Mode::HalfOpen);
    assert!(is_silent(&mut before).await);
    let mut meanwhile = connect(&proxy).await;
    assert!(is_silent(&mut meanwhile).await);
    proxy.set(Mode::Pass);
    assert!(is_silent(&mut before).await);
    assert!(is_silent(&mut meanwhile).await);
    answer(&mut connect(&proxy).await).await.expect("passed");
}

#[tokio::test]
async fn a_reset_comes_in_the_middle_of_a_reply() {
    let proxy = proxy().await;
    let mut client = connect(&proxy).await;
    answer(&mut client).await.expect("passed");
    proxy.set(Mode::Reset { after_bytes: 7 });
    answer(&mut client).await.expect("five of seven bytes");
    let reset = answer(&mut client).await.expect_err("reset");
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_slow_network_delays_both_ways() {
    let proxy = proxy().await;
    proxy.set(Mode::Slow { delay: SILENCE });
    let asked = tokio::time::Instant::now();
    answer(&mut connect(&proxy).await).await.expect("passed");
    assert!(asked.elapsed() >= SILENCE * 2);
}
