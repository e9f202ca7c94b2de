//! The alternate screen of the terminal, for views that are redrawn repeatedly.
//!
//! The terminal is restored when the view ends by a key, a signal, an error or a panic. Only `SIGKILL` leaves it unrestored;
//! `reset` repairs it then.

use std::io::{Stdout, Write as _, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::{cursor, execute, queue, style, terminal};
use tokio::sync::mpsc;

/// The poll timeout of the thread that reads keys, after which it checks whether it is still needed.
const LISTEN: Duration = Duration::from_millis(100);

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A request to leave: q, Esc, Ctrl-C or a signal.
    Quit,
    /// A character key.
    Key(char),
    /// Move to the next panel.
    Tab,
    /// Move to the previous panel.
    BackTab,
    /// Scroll lines up (negative) or down.
    Lines(i32),
    /// Scroll pages up (negative) or down.
    Pages(i32),
    /// The terminal was resized.
    Resized,
}

impl Input {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Resize(..) => Some(Self::Resized),
            Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
            Event::Key(KeyEvent { code, modifiers, .. }) => match code {
                KeyCode::Char('c' | 'd') if modifiers.contains(KeyModifiers::CONTROL) => Some(Self::Quit),
                KeyCode::Char('q') | KeyCode::Esc => Some(Self::Quit),
                KeyCode::Char(key) => Some(Self::Key(*key)),
                KeyCode::Tab | KeyCode::Right => Some(Self::Tab),
                KeyCode::BackTab | KeyCode::Left => Some(Self::BackTab),
                KeyCode::Up => Some(Self::Lines(-1)),
                KeyCode::Down => Some(Self::Lines(1)),
                KeyCode::PageUp => Some(Self::Pages(-1)),
                KeyCode::PageDown => Some(Self::Pages(1)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A guard that restores the terminal when dropped.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    inputs: mpsc::UnboundedReceiver<Input>,
    stop: Stop,
    over: Arc<AtomicBool>,
}

impl Screen {
    /// Switches to the alternate screen and raw mode.
    pub(crate) fn enter() -> Result<Self> {
        // Before anything is changed: a signal that arrives at once must still restore the terminal.
        let stop = Stop::listen()?;
        restore_after_panics();
        terminal::enable_raw_mode()?;
        let (heard, inputs) = mpsc::unbounded_channel();
        let mut screen = Self { out: stdout(), inputs, stop, over: Arc::default() };
        execute!(
            screen.out,
            terminal::EnterAlternateScreen,
            cursor::Hide,
            terminal::DisableLineWrap,
            terminal::Clear(terminal::ClearType::All)
        )?;
        let over = Arc::clone(&screen.over);
        // Never joined: it exits soon after the screen is dropped, or with the process.
        std::thread::Builder::new().name("tidelock-keys".to_owned()).spawn(move || listen(&over, &heard))?;
        Ok(screen)
    }

    /// Returns the current number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.size().1
    }

    /// Returns the current number of columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        terminal::size().map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()))
    }

    /// Draws these lines and clears the rest. The terminal truncates lines that are too long.
    pub(crate) fn draw(&mut self, lines: &[String]) -> Result<()> {
        queue!(self.out, terminal::BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().take(self.rows()).enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            // Cleared first: after a line that fills the row, the cursor is still on its last character.
            queue!(self.out, cursor::MoveTo(0, row), terminal::Clear(terminal::ClearType::UntilNewLine))?;
            queue!(self.out, style::Print(line), style::ResetColor)?;
        }
        if lines.len() < self.rows() {
            let row = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            queue!(self.out, cursor::MoveTo(0, row), terminal::Clear(terminal::ClearType::FromCursorDown))?;
        }
        queue!(self.out, terminal::EndSynchronizedUpdate)?;
        Ok(self.out.flush()?)
    }

    /// Waits for the next input. A signal counts as a request to leave.
    pub(crate) async fn input(&mut self) -> Input {
        tokio::select! {
            biased;
            () = self.stop.asked() => Input::Quit,
            // When the key thread has ended, only signals end the wait.
            Some(input) = self.inputs.recv() => input,
            else => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        restore();
    }
}

fn listen(over: &AtomicBool, heard: &mpsc::UnboundedSender<Input>) {
    while !over.load(Ordering::Relaxed) {
        let input = match poll(LISTEN) {
            Ok(false) => continue,
            Ok(true) => read(),
            Err(_) => return,
        };
        let Ok(event) = input else { return };
        if let Some(input) = Input::of(&event)
            && heard.send(input).is_err()
        {
            return;
        }
    }
}

/// Restores the terminal. Errors are ignored, because nothing can be done about them here.
fn restore() {
    drop(execute!(stdout(), terminal::EnableLineWrap, cursor::Show, terminal::LeaveAlternateScreen));
    drop(terminal::disable_raw_mode());
}

/// Installs a panic hook that restores the terminal before the panic is reported.
fn restore_after_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

/// The termination signals of this process. After `listen` returns, no signal is missed and none terminates the process.
#[derive(Debug)]
pub(crate) struct Stop {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 3],
}

impl Stop {
    /// Starts listening.
    pub(crate) fn listen() -> Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [interrupt, terminate, hangup] = kinds.map(signal);
            Ok(Self { signals: [interrupt?, terminate?, hangup?] })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for the first signal.
    pub(crate) async fn asked(&mut self) {
        #[cfg(unix)]
        {
            let [interrupt, terminate, hangup] = &mut self.signals;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        }
        #[cfg(not(unix))]
        drop(tokio::signal::ctrl_c().await);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_people_expect() {
        let key = |code, modifiers| Input::of(&Event::Key(KeyEvent::new(code, modifiers)));
        let none = KeyModifiers::NONE;
        assert_eq!(key(KeyCode::Char('q'), none), Some(Input::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Quit));
        assert_eq!(key(KeyCode::Char('c'), none), Some(Input::Key('c')));
        assert_eq!(key(KeyCode::Up, none), Some(Input::Lines(-1)));
        assert_eq!(key(KeyCode::F(1), none), None);
        assert_eq!(Input::of(&Event::Resize(80, 24)), Some(Input::Resized));
    }
}
