//! Formats whose weights are plain numbers.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;

use super::{Format, Simd, Tile, WIDTH, prefetch};

/// The weights of a dense format.
pub(super) trait Weight: Copy {
    /// Bytes of a weight.
    const BYTES: usize;
    /// Sixteen weights, converted exactly.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

macro_rules! formats {
    ($($name:ident, $bytes:expr, $load:ident;)*) => {$(
        /// The format of this name.
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Weight for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load<S: Simd>(p: *const u8) -> S::F {
                // SAFETY: sixteen weights are there.
                unsafe { S::$load(p.cast()) }
            }
        }
    )*};
}

formats! {
    F32, 4, load;
    F16, 2, load_f16;
    Bf16, 2, load_bf16;
}

/// A family of one format.
#[derive(Clone, Copy)]
pub(super) struct Dense<W>(PhantomData<W>);

impl<W: Weight> Format for Dense<W> {
    type Activation = f32;
    const ACTIVATIONS: usize = 1;
    const ELEMENTS: usize = 1;
    const BYTES: usize = WIDTH * W::BYTES;

    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(
        tile: &Tile,
        block: usize,
        x: *const f32,
        _: usize,
        ahead: Option<*const u8>,
        sums: &mut [S::F; R],
    ) {
        // SAFETY: the tile holds the block, the activations its element of each row.
        unsafe {
            if let Some(ahead) = ahead {
                prefetch::<S>(ahead, Self::BYTES);
            }
            let place = tile.quants.add(block * Self::BYTES);
            let weight = W::load::<S>(place);
            for r in 0..R {
                sums[r] = S::fma(weight, S::splat(*x.add(r)), sums[r]);
            }
        }
    }
}
