//! Functions of the program's that have their turn in a stream. They run on a thread of the client's, one after the other,
//! once all that was sent before is done; what is sent after them waits, and whoever sends it does not, unless for a
//! result. One that calls what waits is told that it is not permitted, since it is what would be waited for.

use std::thread;

use vgpu_remoting::session::Session;

use super::Error;

/// Has a function run in its turn, with the error that there is by then, if any.
///
/// # Errors
/// `NOT_PERMITTED` in such a function, where as many wait already as there is room for.
pub fn launch(
    session: &'static Session<'static>,
    function: impl FnOnce(Result<(), Error>) + Send + 'static,
) -> Result<(), Error> {
    let nobody_runs = session.defer(|result| function(result.map_err(Error::from)))?;
    if nobody_runs && thread::Builder::new().name("vgpu".into()).spawn(|| session.run()).is_err() {
        // No thread is to be had: then here, where it waits.
        session.run();
    }
    Ok(())
}
