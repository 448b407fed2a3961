//! A provider's sockets. The faults that a server has below HTTP happen here: a door that is closed, so that connecting
//! is refused, and connections that are reset in the middle of an exchange.

use crate::clock::Day;
use crate::script::Script;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures_util::task::AtomicWaker;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Accepts connections while the script says that this provider listens.
pub(crate) struct Door {
    provider: usize,
    script: Arc<Script>,
    day: Day,
    address: SocketAddr,
    listener: Option<TcpListener>,
    /// Bound, but never listening: it keeps the port ours while the door is closed. Not every system lets two sockets
    /// share a port like this; there we go without.
    _placeholder: Option<TcpSocket>,
    connections: Vec<Weak<Reset>>,
}

impl Door {
    pub(crate) fn open(provider: usize, script: Arc<Script>, day: Day) -> io::Result<Self> {
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let placeholder = bound(address).ok();
        Ok(Self {
            provider,
            script,
            day,
            address,
            listener: Some(listener),
            _placeholder: placeholder,
            connections: Vec::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn close(&mut self) {
        self.listener = None;
        for connection in self.connections.drain(..) {
            if let Some(connection) = connection.upgrade() {
                connection.now();
            }
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(1024)
}

impl Listener for Door {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let (open, until) = self.script.door(self.provider, self.day.now());
            if !open {
                self.close();
                self.day.sleep_until(until).await;
                continue;
            }
            let Some(listener) = &self.listener else {
                self.listener = listen(self.address).ok();
                if self.listener.is_none() {
                    // Somebody has the port. It may be free in a moment.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => {
                    let Ok((stream, peer)) = accepted else { continue };
                    // Without it the second half of a slow body waits 40 ms for an acknowledgement.
                    if stream.set_nodelay(true).is_err() {
                        continue;
                    }
                    let connection = Connection { stream, reset: Arc::default() };
                    self.connections.retain(|connection| connection.strong_count() > 0);
                    self.connections.push(Arc::downgrade(&connection.reset));
                    return (connection, peer);
                }
                () = self.day.sleep_until(until) => {}
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// Resets one connection, from a handler or when the door closes.
#[derive(Debug, Default)]
pub(crate) struct Reset {
    wanted: AtomicBool,
    waker: AtomicWaker,
}

impl Reset {
    pub(crate) fn now(&self) {
        self.wanted.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The handle of the connection that a request came in on.
#[derive(Debug, Clone)]
pub(crate) struct Peer(pub(crate) Arc<Reset>);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(Arc::clone(&stream.io().reset))
    }
}

/// A TCP connection that can be reset from outside.
pub(crate) struct Connection {
    stream: TcpStream,
    reset: Arc<Reset>,
}

impl Connection {
    fn check(&self, context: &Context<'_>) -> io::Result<()> {
        self.reset.waker.register(context.waker());
        if !self.reset.wanted.load(Ordering::Acquire) {
            return Ok(());
        }
        // Closing now sends RST instead of FIN.
        self.stream.set_zero_linger()?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
