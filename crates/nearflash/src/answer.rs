//! A one-shot channel for an answer, from the client's thread to the task that awaits the answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::Error;

/// Returns the two ends of a new channel.
pub(crate) fn answer<T>() -> (AnswerSender<T>, AnswerFuture<T>) {
    let shared = Arc::new(Mutex::new(AnswerState::Awaited(None)));
    (AnswerSender { shared: Some(shared.clone()) }, AnswerFuture { shared })
}

#[derive(Debug)]
enum AnswerState<T> {
    /// No answer has come. The waker, if any, is that of the task that waits. [`AnswerSender`] ends
    /// this state.
    Awaited(Option<Waker>),
    /// The answer has come and was not taken. The next poll of [`AnswerFuture`] ends this state.
    Here(Result<T, Error>),
    Taken,
}

/// The sending end, for one answer. Dropped without an answer, it sends [`Error::Closed`].
#[derive(Debug)]
pub(crate) struct AnswerSender<T> {
    shared: Option<Arc<Mutex<AnswerState<T>>>>,
}

impl<T> AnswerSender<T> {
    /// Sends the answer to a request, and wakes the task that awaits it.
    pub(crate) fn keep(mut self, result: Result<T, Error>) {
        self.put(result);
    }

    fn put(&mut self, result: Result<T, Error>) {
        let Some(shared) = self.shared.take() else { return };
        let before = std::mem::replace(&mut *lock(&shared), AnswerState::Here(result));
        if let AnswerState::Awaited(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for AnswerSender<T> {
    fn drop(&mut self) {
        self.put(Err(Error::Closed));
    }
}

/// The receiving end. Dropping it gives up the answer and nothing else.
#[derive(Debug)]
pub(crate) struct AnswerFuture<T> {
    shared: Arc<Mutex<AnswerState<T>>>,
}

impl<T> Future for AnswerFuture<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.shared);
        match std::mem::replace(&mut *state, AnswerState::Taken) {
            AnswerState::Here(result) => Poll::Ready(result),
            AnswerState::Awaited(_) => {
                *state = AnswerState::Awaited(Some(context.waker().clone()));
                Poll::Pending
            }
            AnswerState::Taken => panic!("an answer is awaited once"),
        }
    }
}

fn lock<T>(shared: &Mutex<AnswerState<T>>) -> MutexGuard<'_, AnswerState<T>> {
    shared.lock().expect("no holder of this lock panics")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::block_on;

    #[test]
    fn an_answer_crosses_threads() {
        let (promise, answer) = answer();
        let thread = std::thread::spawn(move || promise.keep(Ok(7)));
        assert_eq!(block_on(answer), Ok(7));
        thread.join().unwrap();
    }

    #[test]
    fn a_broken_promise_is_told() {
        let (promise, answer) = answer::<u8>();
        drop(promise);
        assert_eq!(block_on(answer), Err(Error::Closed));
    }
}
