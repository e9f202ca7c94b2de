//! The whole terminal, for views that are drawn again and again.
//!
//! Whatever ends the view, a key, a signal, an error or a panic, the terminal is given back as it was. Only a process that is
//! killed outright leaves it: `reset` mends it then.

use std::io::{Stdout, Write as _, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::{cursor, execute, queue, style, terminal};
use tokio::sync::mpsc;

/// How long the thread that reads keys looks before it asks whether it is still needed.
const LISTEN: Duration = Duration::from_millis(100);

/// What the user did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Wants to leave: q, Esc, Ctrl-C or a signal.
    Quit,
    /// A key that stands for itself.
    Key(char),
    /// The next panel.
    Tab,
    /// The panel before.
    BackTab,
    /// Lines up (negative) or down.
    Lines(i32),
    /// Pages up (negative) or down.
    Pages(i32),
    /// The terminal has another size.
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

/// The terminal while it is ours.
#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    inputs: mpsc::UnboundedReceiver<Input>,
    stop: Stop,
    over: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn enter() -> Result<Self> {
        // Before anything is changed: a signal that comes at once must find somebody who gives the terminal back.
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
        // Never joined: it ends soon after the screen, or with the process.
        std::thread::Builder::new().name("tidelock-keys".to_owned()).spawn(move || listen(&over, &heard))?;
        Ok(screen)
    }

    /// How many rows there are now.
    pub(crate) fn rows(&self) -> usize {
        self.size().1
    }

    /// How many columns and rows there are now.
    pub(crate) fn size(&self) -> (usize, usize) {
        terminal::size().map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()))
    }

    /// Draws these lines and nothing else. Lines that are too long are cut by the terminal.
    pub(crate) fn draw(&mut self, lines: &[String]) -> Result<()> {
        queue!(self.out, terminal::BeginSynchronizedUpdate)?;
        for (row, line) in lines.iter().take(self.rows()).enumerate() {
            let row = u16::try_from(row).unwrap_or(u16::MAX);
            // Cleared first: after a line that fills the row, the cursor still stands on its last letter.
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

    /// What the user does next. A signal means that the user wants to leave.
    pub(crate) async fn input(&mut self) -> Input {
        tokio::select! {
            biased;
            () = self.stop.asked() => Input::Quit,
            // Once nobody can type any more, only signals end it.
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

/// Gives the terminal back. What fails here cannot be mended here.
fn restore() {
    drop(execute!(stdout(), terminal::EnableLineWrap, cursor::Show, terminal::LeaveAlternateScreen));
    drop(terminal::disable_raw_mode());
}

/// A panic gives the terminal back before it tells what happened.
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

/// The signals that ask this process to end. From the moment that it is made none is missed, and none ends the process by itself.
#[derive(Debug)]
pub(crate) struct Stop {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 3],
}

impl Stop {
    /// Begins to listen.
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

    /// Waits for the first of them.
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
