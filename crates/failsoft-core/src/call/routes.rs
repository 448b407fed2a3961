//! The routes that fallbacks inside each other have taken for one call.

use std::sync::Arc;

/// At most so many are remembered of one call; beyond that none is given out.
pub(super) const MAX_ROUTES: usize = 256;

#[derive(Default)]
pub(super) struct Routes(Vec<Visited>);

struct Visited {
    route: Arc<str>,
    /// Whether the attempt is over, or a fallback inside it has taken the name for its own first route.
    closed: bool,
}

impl Routes {
    pub(super) fn visit(&mut self, route: &Arc<str>) -> bool {
        self.find(route).is_none() && self.remember(route, false)
    }

    pub(super) fn visit_first(&mut self, route: &Arc<str>) -> bool {
        if let Some(visited) = self.find(route) {
            return !std::mem::replace(&mut visited.closed, true);
        }
        self.remember(route, true)
    }

    fn find(&mut self, route: &Arc<str>) -> Option<&mut Visited> {
        self.0.iter_mut().find(|visited| visited.route == *route)
    }

    /// `false` when there is no room.
    fn remember(&mut self, route: &Arc<str>, closed: bool) -> bool {
        let room = self.0.len() < MAX_ROUTES;
        if room {
            self.0.push(Visited { route: Arc::clone(route), closed });
        }
        room
    }
}
