//! The methods that a provider around another one passes on. The names of types are those of the module `provider`.

/// Implements the named methods of [`Provider`](super::Provider) by those of `self.inner`.
macro_rules! pass_on {
    ($($method:ident),+ $(,)?) => { $(pass_on! { @$method })+ };
    (@caps) => {
        fn caps(&self) -> &super::Caps {
            self.inner.caps()
        }
    };
    (@listen) => {
        fn listen(
            &mut self,
            at: super::SocketAddr,
        ) -> super::io::Result<(Self::Listener, super::SocketAddr)> {
            self.inner.listen(at)
        }
    };
    (@unlisten) => {
        fn unlisten(&mut self, listener: Self::Listener) {
            self.inner.unlisten(listener);
        }
    };
    (@next_incoming) => {
        #[inline]
        fn next_incoming(
            &mut self,
            now: super::Instant,
            has_room_beside: impl FnOnce() -> bool,
        ) -> Option<Self::Incoming> {
            self.inner.next_incoming(now, has_room_beside)
        }

        fn look_again(&mut self) {
            self.inner.look_again();
        }
    };
    (@adopt) => {
        fn adopt(
            &mut self,
            now: super::Instant,
            incoming: Self::Incoming,
            place: super::Place,
        ) -> Result<(), (Self::Incoming, super::Place)> {
            self.inner.adopt(now, incoming, place)
        }
    };
    (@connect) => {
        fn connect(
            &mut self,
            now: super::Instant,
            to: super::SocketAddr,
            params: &super::ConnectionParams<'_>,
        ) -> Result<super::QpNum, super::ConnectError> {
            self.inner.connect(now, to, params)
        }
    };
    (@answer) => {
        fn answer(
            &mut self,
            now: super::Instant,
            qp: super::QpNum,
            answer: &super::ConnectionAnswer<'_>,
        ) {
            self.inner.answer(now, qp, answer);
        }
    };
    (@peer_user) => {
        fn peer_user(&mut self, qp: super::QpNum) -> super::PeerUser {
            self.inner.peer_user(qp)
        }
    };
    (@disconnect) => {
        fn disconnect(&mut self, now: super::Instant, qp: super::QpNum) {
            self.inner.disconnect(now, qp);
        }
    };
    (@port) => {
        #[inline]
        fn port(&mut self, qp: super::QpNum) -> Option<Self::Port<'_>> {
            self.inner.port(qp)
        }
    };
    (@reserve_receives) => {
        fn reserve_receives(&mut self, qp: super::QpNum, count: u32) {
            self.inner.reserve_receives(qp, count);
        }
    };
    (@waker) => {
        fn waker(&self) -> super::Waker {
            self.inner.waker()
        }
    };
    (@counters) => {
        fn counters(&self) -> super::Counters {
            self.inner.counters()
        }
    };
}

pub(super) use pass_on;
