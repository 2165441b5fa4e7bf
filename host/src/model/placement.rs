//! Where a model computes: what was asked for, what the machine has, and what the model needs.

use lockstep_kernels::{KERNELS, Kernel};

use super::on_device::{DeviceFootprint, OnDevice};
use super::{Model, ModelError, ModelOptions, Numerics};
use crate::backend::cuda::{self, Cuda};
use crate::backend::{DeviceChoice, Isa};
use crate::batch::Forward;
use crate::gguf::Gguf;

/// What a placement is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest {
    /// Where to compute.
    pub device: DeviceChoice,
    /// The share of a device's memory that may be used, above 0 and at most 1.
    pub gpu_memory_utilization: f64,
    /// Whether the options' `num_blocks` was asked for; else a device's pool is as large as its
    /// memory allows.
    pub num_blocks_given: bool,
}

/// Where a model computes.
#[derive(Debug)]
pub struct Placement {
    /// None on the CPU.
    cuda: Option<Cuda>,
    num_blocks: u32,
}

impl Placement {
    /// Opens what was asked for, if the model of `file` can compute there. [`DeviceChoice::Auto`] is
    /// the CPU where no device will do, but for the `fast` numerics, which a CPU does not compute.
    ///
    /// # Errors
    /// [`ModelError`] with what is missing, for a device that was asked for by name or by the
    /// numerics.
    pub fn choose(
        file: &Gguf,
        options: &ModelOptions,
        request: &PlacementRequest,
    ) -> Result<Self, ModelError> {
        let cpu = Self {
            cuda: None,
            num_blocks: options.num_blocks,
        };
        let ordinal = match request.device {
            DeviceChoice::Cpu => return Ok(cpu),
            DeviceChoice::Auto => 0,
            DeviceChoice::Cuda(ordinal) => ordinal,
        };
        let may_be_cpu =
            request.device == DeviceChoice::Auto && options.numerics == Numerics::Portable;
        match on_cuda(file, options, request, ordinal) {
            Err(error) if may_be_cpu => {
                // A GPU that is there and is not used is news; none is not.
                let level = match cuda::devices() {
                    Ok(_) => log::Level::Warn,
                    Err(_) => log::Level::Info,
                };
                log::log!(level, "computing on the CPU: {error}");
                Ok(cpu)
            }
            Err(reason @ ModelError::Device(_)) => Err(missing(reason, options, request)),
            placed => placed,
        }
    }

    /// KV blocks of the pool.
    pub const fn num_blocks(&self) -> u32 {
        self.num_blocks
    }

    /// Its name, for people: that of the device, or the CPU's vector instructions.
    pub fn name(&self) -> String {
        match &self.cuda {
            Some(cuda) => cuda.info().to_string(),
            None => format!("cpu ({})", Isa::best()),
        }
    }

    /// The kind of device that it is: one kind gives the same bits.
    pub fn kind(&self) -> String {
        match &self.cuda {
            Some(cuda) => cuda.info().name.clone(),
            None => "cpu".to_owned(),
        }
    }

    /// Whether it is a CUDA device.
    pub const fn is_cuda(&self) -> bool {
        self.cuda.is_some()
    }

    /// Loads the model there.
    ///
    /// # Errors
    /// As [`Model::load`] and [`OnDevice::load`].
    pub fn load(self, file: &Gguf, options: ModelOptions) -> Result<Box<dyn Forward>, ModelError> {
        Ok(match self.cuda {
            Some(cuda) => Box::new(OnDevice::load(file, options, cuda)?),
            None => Box::new(Model::load(file, options)?),
        })
    }
}

/// Says who asked for a device that cannot be had.
fn missing(reason: ModelError, options: &ModelOptions, request: &PlacementRequest) -> ModelError {
    let (asked, instead) = match options.numerics {
        Numerics::Portable => (format!("--device {}", request.device), "--device cpu"),
        Numerics::Fast => ("--numerics fast".to_owned(), "--numerics portable"),
    };
    ModelError::NoDevice {
        asked,
        reason: Box::new(reason),
        instead,
    }
}

fn on_cuda(
    file: &Gguf,
    options: &ModelOptions,
    request: &PlacementRequest,
    ordinal: u32,
) -> Result<Placement, ModelError> {
    // What the file is comes first: it says more than that there is no driver.
    let needed = DeviceFootprint::of(file, options)?;
    let cuda = Cuda::open(ordinal, &kernels(options.numerics)).map_err(ModelError::Device)?;
    let memory = cuda.memory().map_err(ModelError::Device)?;
    let num_blocks = match request.num_blocks_given {
        true => {
            needed.check(options.num_blocks, memory.0)?;
            options.num_blocks
        }
        false => needed.blocks(memory, request.gpu_memory_utilization, options)?,
    };
    log::info!("computing on {}", cuda.info());
    Ok(Placement {
        cuda: Some(cuda),
        num_blocks,
    })
}

/// What a model of these numerics launches.
fn kernels(numerics: Numerics) -> Vec<&'static Kernel> {
    match numerics {
        Numerics::Portable => KERNELS.iter().collect(),
        Numerics::Fast => lockstep_kernels::kernels().collect(),
    }
}
