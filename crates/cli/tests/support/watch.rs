//! Detects lost CPUs: a virtual machine can lose one for many milliseconds, in which a program on
//! the other fills memory and no thread of memfit runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(1);

/// One real-time thread on each CPU: if it wakes late, its CPU ran no ordinary thread meanwhile.
pub struct Watch {
    end: Arc<AtomicBool>,
    late: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    pub fn start() -> Watch {
        let (end, late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..memfit_os::probe::usable_cores()).map(|cpu| {
            let (end, late) = (Arc::clone(&end), Arc::clone(&late));
            std::thread::spawn(move || {
                memfit_os::sched::run_on(cpu);
                let param = libc::sched_param { sched_priority: 50 };
                // SAFETY: changes the calling thread only. Without the right to do so, a busy CPU
                // would look like a lost one.
                if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) } != 0 {
                    return;
                }
                while !end.load(Relaxed) {
                    let start = Instant::now();
                    std::thread::sleep(STEP);
                    late.fetch_max((start.elapsed() - STEP).as_micros() as u64, Relaxed);
                }
            })
        });
        let threads = threads.collect();
        Watch { end, late, threads }
    }

    /// The longest time that a CPU was lost.
    pub fn stop(self) -> Duration {
        self.end.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        Duration::from_micros(self.late.load(Relaxed))
    }
}
