//! The state of the screen of `nearflash top`, and its changes by keys.

use std::ops::ControlFlow;

use control::admin::{DeviceStatus, Flows, Stages, TenantStatus};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::rows::{self, Rows};
use super::trend::Trends;

/// The server's latest answers, which the screen shows.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) tenants: Vec<TenantStatus>,
    pub(super) devices: Vec<DeviceStatus>,
    pub(super) flows: Flows,
    /// The latency histograms of the opened tenant's reads by stage; `None` if no tenant is opened
    /// or it is gone.
    pub(super) stages: Option<Stages>,
}

/// A table that the screen can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Tenants,
    Devices,
    Workers,
    Namespaces,
}

impl Tab {
    pub(super) const ALL: [Tab; 4] = [Tab::Tenants, Tab::Devices, Tab::Workers, Tab::Namespaces];

    pub(super) fn title(self) -> &'static str {
        match self {
            Tab::Tenants => "Tenants",
            Tab::Devices => "Devices",
            Tab::Workers => "Workers",
            Tab::Namespaces => "Namespaces",
        }
    }

    /// Returns the name of the view that Enter opens in this table, or `None` if it has none.
    pub(super) fn opens(self) -> Option<&'static str> {
        match self {
            Tab::Tenants => Some("one tenant"),
            Tab::Devices => Some("one device"),
            Tab::Workers => Some("one worker"),
            Tab::Namespaces => None,
        }
    }
}

/// The sort order of a table: a column's index, and the direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) is_reversed: bool,
}

/// The state of the screen: the server's answers, and what the user has chosen to see.
#[derive(Debug)]
pub(super) struct State {
    pub(super) address: String,
    pub(super) data: Data,
    /// The tail latencies of the last answers.
    trends: Trends,
    /// The error of the last query to the server; `None` if the server answers.
    pub(super) trouble: Option<String>,
    pub(super) tab: Tab,
    /// The sort order of each table, by the index of its [`Tab`].
    pub(super) orders: [Order; 4],
    pub(super) selected: TableState,
    /// The row that is opened in a view of its own, by its first cell; `None` while the table is
    /// shown.
    opened: Option<String>,
    /// The text that a row's name must contain for the row to be shown; empty for all rows.
    pub(super) search: String,
    pub(super) is_searching: bool,
    pub(super) shows_help: bool,
    /// Number of columns that are scrolled out of the screen at the left.
    pub(super) scrolled: usize,
    is_stale: bool,
}

impl State {
    pub(super) fn new(address: String, data: Data) -> State {
        let by = |column| Order { column, is_reversed: false };
        let mut trends = Trends::default();
        trends.note(&data.tenants);
        State {
            address,
            data,
            trends,
            trouble: None,
            tab: Tab::Tenants,
            // Those in trouble first; the others by name.
            orders: [by(1), by(0), by(0), by(0)],
            selected: TableState::new().with_selected(0),
            opened: None,
            search: String::new(),
            is_searching: false,
            shows_help: false,
            scrolled: 0,
            is_stale: false,
        }
    }

    /// Takes the server's latest answers, or the error of the query.
    pub(super) fn take(&mut self, looked: Result<Data, String>) {
        let is_extra = std::mem::take(&mut self.is_stale);
        match looked {
            Ok(data) => {
                // A look for a view that was just opened is none of the regular ones.
                if !is_extra {
                    self.trends.note(&data.tenants);
                }
                (self.data, self.trouble) = (data, None);
            }
            Err(why) => self.trouble = Some(why),
        }
    }

    /// Returns `true` if the screen shows a view whose data was not queried yet.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns the name of the row that is opened in a view of its own, if any.
    pub(super) fn opened(&self) -> Option<&str> {
        self.opened.as_deref()
    }

    /// Returns the name of the tenant that is opened, whose details have to be queried; `None` if
    /// none is.
    pub(super) fn opened_tenant(&self) -> Option<&str> {
        self.opened().filter(|_| self.tab == Tab::Tenants)
    }

    pub(super) fn order(&self) -> Order {
        self.orders[self.tab as usize]
    }

    /// Returns the table that is shown: the rows that match the search, sorted.
    pub(super) fn rows(&self) -> Rows {
        let mut rows = match self.tab {
            Tab::Tenants => {
                rows::tenants(&self.data.tenants).with_trends(&self.data.tenants, &self.trends)
            }
            Tab::Devices => rows::devices(&self.data.devices, &self.data.flows.devices),
            Tab::Workers => rows::workers(&self.data.flows.workers),
            Tab::Namespaces => rows::namespaces(&self.data.flows.namespaces),
        };
        let wanted = self.search.to_lowercase();
        rows.rows.retain(|row| row[0].text.to_lowercase().contains(&wanted));
        let Order { column, is_reversed } = self.order();
        rows.sort(column, is_reversed);
        rows
    }

    /// Handles a key. Returns `Break` if the key ends the program.
    pub(super) fn press(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let columns = self.rows().columns.len();
        let last = self.rows().rows.len().saturating_sub(1);
        let order = &mut self.orders[self.tab as usize];
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return ControlFlow::Break(());
            }
            _ if self.shows_help => self.shows_help = false,
            _ if self.is_searching => self.type_in(key.code),
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('?') => self.shows_help = true,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left if self.opened.is_some() => {
                self.opened = None;
            }
            KeyCode::Esc if !self.search.is_empty() => self.search.clear(),
            KeyCode::Esc => return ControlFlow::Break(()),
            _ if self.opened.is_some() => {}
            KeyCode::Char('/') => self.is_searching = true,
            KeyCode::Right => self.scrolled = (self.scrolled + 1).min(columns - 1),
            KeyCode::Left => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Char(digit @ '1'..='4') => self.turn_to(digit as usize - '1' as usize),
            KeyCode::Tab => self.turn_to((self.tab as usize + 1) % Tab::ALL.len()),
            KeyCode::BackTab => self.turn_to((self.tab as usize + 3) % Tab::ALL.len()),
            KeyCode::Char('s' | '>') => order.column = (order.column + 1) % columns,
            KeyCode::Char('S' | '<') => order.column = (order.column + columns - 1) % columns,
            KeyCode::Char('r') => order.is_reversed = !order.is_reversed,
            KeyCode::Down | KeyCode::Char('j') => self.select(|n| (n + 1).min(last)),
            KeyCode::Up | KeyCode::Char('k') => self.select(|n| n.saturating_sub(1)),
            KeyCode::PageDown => self.select(|n| (n + 20).min(last)),
            KeyCode::PageUp => self.select(|n| n.saturating_sub(20)),
            KeyCode::Home => self.select(|_| 0),
            KeyCode::End => self.select(|_| last),
            KeyCode::Enter if self.tab.opens().is_some() => self.open(),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Handles a key while the user types a search.
    fn type_in(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) => self.search.push(letter),
            KeyCode::Backspace => drop(self.search.pop()),
            KeyCode::Esc => self.search.clear(),
            _ => {}
        }
        self.is_searching = matches!(code, KeyCode::Char(_) | KeyCode::Backspace);
        self.select(|_| 0);
    }

    fn turn_to(&mut self, n: usize) {
        self.tab = Tab::ALL[n];
        self.scrolled = 0;
        self.selected = TableState::new().with_selected(0);
    }

    fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        self.selected.select(Some(to(self.selected.selected().unwrap_or(0))));
    }

    fn open(&mut self) {
        let rows = self.rows().rows;
        let row = self.selected.selected().and_then(|n| rows.get(n));
        self.opened = row.map(|row| row[0].text.clone());
        self.data.stages = None;
        self.is_stale = self.opened_tenant().is_some();
    }
}
