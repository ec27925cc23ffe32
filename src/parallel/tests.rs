use super::*;
use crate::target::Target;

#[test]
fn parts_cover_a_slice_once() {
    for (n, len) in [(0, 3), (1, 3), (9, 3), (10, 3), (1000, 7)] {
        let mut data = vec![0; n];
        Pool::new(2).run_parts(&mut data, len, |i, part| part.iter_mut().for_each(|x| *x += i + 1));
        assert!(data.iter().enumerate().all(|(k, &x)| x == k / len + 1), "{n} by {len}");
    }
}

#[test]
fn every_chunk_runs_once() {
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads);
        for round in 0..2000 {
            let n = round % 37;
            let hits: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.run(n, |i| {
                hits[i].fetch_add(1, Relaxed);
            });
            assert!(
                hits.iter().all(|h| h.load(Relaxed) == 1),
                "{threads} threads, {n} chunks"
            );
        }
    }
}

#[test]
fn workers_have_the_target_of_the_caller() {
    let pool = Pool::new(3);
    for target in [Target::default(), Target::native()] {
        let same = AtomicUsize::new(0);
        with_target(target, || {
            pool.run(100, |_| {
                std::thread::sleep(Duration::from_micros(50));
                same.fetch_add((thread_target() == target) as usize, Relaxed);
            })
        });
        assert_eq!(same.into_inner(), 100);
    }
}

#[test]
fn sleeping_workers_wake() {
    let pool = Pool::new(3);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(1));
        let sum = AtomicUsize::new(0);
        pool.run(100, |i| {
            sum.fetch_add(i, Relaxed);
        });
        assert_eq!(sum.into_inner(), 4950);
    }
}

#[test]
fn jobs_nest_and_several_threads_may_call() {
    let pool = Pool::new(2);
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(4, |_| {
                        pool.run(5, |j| {
                            sum.fetch_add(j, Relaxed);
                        })
                    });
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 3 * 200 * 4 * 10);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = Pool::new(2);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        pool.run(8, |i| {
            if i == 3 {
                panic!("chunk three");
            }
        })
    }));
    assert_eq!(
        caught.expect_err("a panic").downcast_ref::<&str>(),
        Some(&"chunk three")
    );
    let n = AtomicUsize::new(0);
    pool.run(8, |_| {
        n.fetch_add(1, Relaxed);
    });
    assert_eq!(n.into_inner(), 8);
}
