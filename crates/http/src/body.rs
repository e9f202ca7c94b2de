//! Request bodies that are read as a whole, up to a limit.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::error::RequestError;

/// The error of a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the whole body of a request.
pub(crate) async fn whole<B>(body: B, limit: usize) -> Result<Bytes, RequestError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    // A body that declares a larger size is rejected without being read.
    if body.size_hint().lower() > limit as u64 {
        return Err(RequestError::TooLarge { limit });
    }
    match Limited::new(body, limit).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(RequestError::TooLarge { limit }),
        Err(error) => Err(RequestError::BrokenOff { reason: error.to_string() }),
    }
}
