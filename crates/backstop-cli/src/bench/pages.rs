//! Every page of the dashboard and every list of the API on a large store: how long each takes, and
//! what somebody who looks costs those who work.

mod addresses;
mod fixture;

use super::BenchArgs;
use super::bench_store::BenchStore;
use super::figures::{BenchRate, median_time};
use super::http::{BenchClient, config, library_push, library_work, rounds, serve};
use addresses::PageAddress;
use anyhow::{Context, Result, anyhow};
use backstop::core::limits::PROMOTE_MAX;
use backstop::{Backstop, Durability, StoreKind, WorkerTiming};
use backstop_server::App;
use comfy_table::{Cell, CellAlignment, Table, presets};
use fixture::PageFixture;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The longest a page may take.
const PAGE_MAX: Duration = Duration::from_millis(200);
/// The least that claims may do beside a page that is open, as a share of what they do alone.
const SHARE_MIN: f64 = 0.95;
/// Each page is asked for so many times more.
const AGAIN: usize = 5;
/// Makes ready what is due so many times, which adds up to 500,000 changes.
const ROUNDS_OF_THE_HOUSE: usize = 100;
/// How often a page that is open asks for what is new, at most: the script of the pages waits as
/// long.
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// How often somebody who cannot wait reloads.
const RELOAD_EVERY: Duration = Duration::from_millis(100);
/// Jobs of one measurement of claims: so many seconds of it that all pages come up.
const CYCLE_JOBS: usize = 500_000;

#[derive(Debug, Serialize)]
pub(super) struct PagesBench {
    #[serde(skip)]
    store: StoreKind,
    jobs: usize,
    dead: usize,
    fill_seconds: f64,
    #[serde(rename = "pages")]
    timed: Vec<PageTiming>,
    claims: ClaimRates,
}

/// How long an address takes.
#[derive(Debug, Serialize)]
struct PageTiming {
    address: String,
    first_ms: f64,
    median_ms: f64,
    bytes: usize,
    is_over: bool,
}

/// Jobs claimed and ended, alone and beside others who look.
#[derive(Debug, Serialize)]
struct ClaimRates {
    alone: BenchRate,
    /// Pages that are open, the slowest ones first.
    open: LoadedClaimRate,
    /// Somebody who reloads, one page after the other and all of them.
    reloading: LoadedClaimRate,
}

/// Jobs claimed and ended beside somebody who looks.
#[derive(Debug, Serialize)]
struct LoadedClaimRate {
    rate: BenchRate,
    ratio: f64,
    /// Pages that were shown meanwhile.
    shown: usize,
}

/// Fills a store that is gone afterwards, goes through all addresses, and then works beside
/// somebody who does.
pub(super) async fn measure(
    place: &BenchStore,
    filled: &Backstop,
    durability: Durability,
    args: &BenchArgs,
    bar: &ProgressBar,
) -> Result<PagesBench> {
    let filling = Instant::now();
    let ground = PageFixture::fill(filled, place.folder(), args, bar).await?;
    let fill_seconds = filling.elapsed().as_secs_f64();
    keep_house(filled).await?;
    place.calm().await?;
    // Opened anew: the first page finds nothing that was read before. What is in memory is where it
    // was filled.
    let backstop = match place.kind() {
        StoreKind::Memory => filled.clone(),
        StoreKind::Sqlite | StoreKind::Postgres | StoreKind::Redis => {
            Backstop::open_with(place.measured().as_written(), durability).await?
        }
    };
    let mut serving = serve(&App::new(backstop.clone(), config(ground.config())?, "")).await?;
    let timed = time_all(&ground, serving.address(), bar).await?;
    let claims = claims(&backstop, serving.address(), &timed, args, bar).await?;
    serving.stop();
    serving.wait_until_ended().await;
    Ok(PagesBench {
        store: place.kind(),
        jobs: args.jobs(),
        dead: args.dead,
        fill_seconds,
        timed,
        claims,
    })
}

/// What every worker does within seconds of so many changes: PostgreSQL adds its counts up there.
async fn keep_house(backstop: &Backstop) -> Result<()> {
    for _ in 0..ROUNDS_OF_THE_HOUSE {
        backstop
            .store()
            .promote(PROMOTE_MAX, backstop.now())
            .await?;
    }
    Ok(())
}

/// Asks for each address, and for the page behind its first where there is one.
async fn time_all(
    ground: &PageFixture,
    server: SocketAddr,
    bar: &ProgressBar,
) -> Result<Vec<PageTiming>> {
    let mut client = BenchClient::connect(server).await?;
    let mut timed = Vec::new();
    for address in addresses::all(ground)? {
        bar.set_message(format!("asking for {address}"));
        let body = time(&mut client, &address, &mut timed).await?;
        if let Some(next) = address.next(&body) {
            time(&mut client, &next, &mut timed).await?;
        }
    }
    Ok(timed)
}

async fn time(
    client: &mut BenchClient,
    address: &PageAddress,
    timed: &mut Vec<PageTiming>,
) -> Result<String> {
    let (mut first, mut again, mut body) =
        (Duration::ZERO, Vec::with_capacity(AGAIN), String::new());
    for nth in 0..=AGAIN {
        let started = Instant::now();
        body = client
            .get(address.as_str())
            .await
            .with_context(|| format!("asking for {address}"))?;
        match nth {
            0 => first = started.elapsed(),
            _ => again.push(started.elapsed()),
        }
    }
    let median = median_time(again);
    let ms = |time: Duration| (time.as_secs_f64() * 10_000.0).round() / 10.0;
    timed.push(PageTiming {
        address: address.to_string(),
        first_ms: ms(first),
        median_ms: ms(median),
        bytes: body.len(),
        is_over: first.max(median) > PAGE_MAX,
    });
    Ok(body)
}

/// Claims and ends jobs by turns alone and beside others who look.
async fn claims(
    backstop: &Backstop,
    server: SocketAddr,
    timed: &[PageTiming],
    args: &BenchArgs,
    bar: &ProgressBar,
) -> Result<ClaimRates> {
    let rounds = rounds(CYCLE_JOBS.min(args.jobs()));
    let pages: Vec<&PageTiming> = timed
        .iter()
        .filter(|page| !page.address.starts_with("/v1/"))
        .collect();
    let mut slowest = pages.clone();
    slowest.sort_by(|a, b| b.median_ms.total_cmp(&a.median_ms));
    let addresses =
        |pages: Vec<&PageTiming>| pages.into_iter().map(|page| page.address.clone()).collect();
    let mut alone = Vec::new();
    let mut open = PageViewers::new(server, addresses(slowest), LIVE_EVERY);
    let mut reloading = PageViewers::new(server, addresses(pages), RELOAD_EVERY);
    for repetition in 1..=args.repeat {
        let say = |what: &str| bar.set_message(format!("{what}, {repetition} of {}", args.repeat));
        // Each comes first, second and last in turn: what one leaves behind, as rows to be
        // vacuumed, is the next one's load.
        for turn in 0..3 {
            library_push(backstop, rounds).await?;
            match (repetition + turn) % 3 {
                0 => {
                    say("claiming beside a page that is open");
                    open.measure_under_load(backstop, rounds).await?;
                }
                1 => {
                    say("claiming alone");
                    alone.push(work_and_keep_house(backstop, rounds).await?);
                }
                _ => {
                    say("claiming beside somebody who reloads");
                    reloading.measure_under_load(backstop, rounds).await?;
                }
            }
        }
    }
    let alone = BenchRate::median(alone);
    Ok(ClaimRates {
        alone,
        open: open.come_to(alone),
        reloading: reloading.come_to(alone),
    })
}

/// Somebody who looks, one page after the other.
struct PageViewers {
    server: SocketAddr,
    pages: Vec<String>,
    every: Duration,
    rates: Vec<BenchRate>,
    shown: usize,
}

impl PageViewers {
    fn new(server: SocketAddr, pages: Vec<String>, every: Duration) -> Self {
        Self {
            server,
            pages,
            every,
            rates: Vec::new(),
            shown: 0,
        }
    }

    /// Claims and ends jobs meanwhile.
    async fn measure_under_load(&mut self, backstop: &Backstop, rounds: usize) -> Result<()> {
        let stop = CancellationToken::new();
        let looking = tokio::spawn(look(
            self.server,
            self.pages.clone(),
            self.shown,
            self.every,
            stop.clone(),
        ));
        self.rates
            .push(work_and_keep_house(backstop, rounds).await?);
        stop.cancel();
        self.shown += looking.await??;
        Ok(())
    }

    fn come_to(self, alone: BenchRate) -> LoadedClaimRate {
        let rate = BenchRate::median(self.rates);
        LoadedClaimRate {
            rate,
            ratio: rate.ratio_to(alone),
            shown: self.shown,
        }
    }
}

/// Claims and ends jobs beside what every worker does as often: without it PostgreSQL's counts
/// would never be added up meanwhile.
async fn work_and_keep_house(backstop: &Backstop, rounds: usize) -> Result<BenchRate> {
    let mut pace = tokio::time::interval(WorkerTiming::default().maintenance_interval.into());
    let house = async {
        loop {
            pace.tick().await;
            if let Err(error) = backstop.store().promote(PROMOTE_MAX, backstop.now()).await {
                return error;
            }
        }
    };
    tokio::select! {
        worked = library_work(backstop, rounds) => worked,
        error = house => Err(error.into()),
    }
}

/// Loads page after page from the one at `first` on until told to stop; answers how many.
async fn look(
    server: SocketAddr,
    pages: Vec<String>,
    first: usize,
    every: Duration,
    stop: CancellationToken,
) -> Result<usize> {
    let mut client = BenchClient::connect(server).await?;
    let mut pace = tokio::time::interval(every);
    for shown in 0.. {
        tokio::select! {
            () = stop.cancelled() => return Ok(shown),
            _ = pace.tick() => {}
        }
        client.get(&pages[(first + shown) % pages.len()]).await?;
    }
    Err(anyhow!("there is always a next page"))
}

impl PagesBench {
    /// Whether a page takes too long, or one that is open costs those who work too much.
    pub(super) fn falls_short(&self) -> bool {
        self.claims.open.ratio < SHARE_MIN || self.timed.iter().any(|page| page.is_over)
    }

    pub(super) fn json(&self) -> Result<String> {
        let report = json!({
            "store": self.store.word(),
            "page_max_ms": PAGE_MAX.as_millis(),
            "ratio_min": SHARE_MIN,
            "figures": self,
            "falls_short": self.falls_short(),
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["address", "first, ms", "median, ms", "KiB", ""]);
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        for page in &self.timed {
            table.add_row([
                Cell::new(&page.address),
                right(format!("{:.1}", page.first_ms)),
                right(format!("{:.1}", page.median_ms)),
                right((page.bytes >> 10).to_string()),
                Cell::new(if page.is_over { "over 200 ms" } else { "" }),
            ]);
        }
        let over = self.timed.iter().filter(|page| page.is_over).count();
        let ClaimRates {
            alone,
            open,
            reloading,
        } = &self.claims;
        let beside = |beside: &LoadedClaimRate| {
            format!("{} ({:.3})", beside.rate.count_per_second(), beside.ratio)
        };
        format!(
            "{table}\n{} with {} jobs and {} dead letters, filled in within {:.0} s. {over} of {} addresses take over {} ms.\n\
             Claims and ends: {} a second alone; {} beside a page that is open, each second another of the slowest ({} were shown), and at least {SHARE_MIN} is promised; \
             {} beside somebody who reloads every {} ms, one page after the other ({} were shown).\n",
            self.store.word(),
            self.jobs,
            self.dead,
            self.fill_seconds,
            self.timed.len(),
            PAGE_MAX.as_millis(),
            alone.count_per_second(),
            beside(open),
            open.shown,
            beside(reloading),
            RELOAD_EVERY.as_millis(),
            reloading.shown,
        )
    }
}
