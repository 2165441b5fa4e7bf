//! The HTTP side over a real socket, in front of an engine that plays scripts and checks what it is
//! given.

mod answers;
mod client;
mod clients;
mod defence;
mod endpoints;
mod engine;
mod fixture;
mod fuzz;
mod lifecycle;
mod real;
mod responses;
mod tls;
mod tools;
