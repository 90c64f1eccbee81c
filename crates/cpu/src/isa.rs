//! Instruction sets: which there are, and which this CPU has.

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What the target guarantees.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// An instruction set that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IsaError {
    /// The name means nothing.
    #[error("instruction set `{name}` is not one of avx512, avx2, portable")]
    Unknown {
        /// The name given.
        name: String,
    },
    /// The CPU lacks it.
    #[error("instruction set `{isa}` is not available on this CPU, the best here is `{best}`")]
    Unavailable {
        /// The one asked for.
        isa: Isa,
        /// The best one here.
        best: Isa,
    },
}

impl Isa {
    /// All, best last.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The best one that this CPU has.
    #[must_use]
    pub fn detect() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Portable)
    }

    /// Whether this CPU has it.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Portable => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }

    pub(crate) fn require(self) -> Result<(), IsaError> {
        if self.is_available() {
            Ok(())
        } else {
            Err(IsaError::Unavailable { isa: self, best: Self::detect() })
        }
    }

    pub(crate) fn from_environment() -> Result<Self, IsaError> {
        match std::env::var("TILED_ISA") {
            Err(_) => Ok(Self::detect()),
            Ok(name) => {
                let isa: Self = name.parse()?;
                isa.require()?;
                Ok(isa)
            }
        }
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

impl std::str::FromStr for Isa {
    type Err = IsaError;
    fn from_str(name: &str) -> Result<Self, IsaError> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.to_string() == name)
            .ok_or_else(|| IsaError::Unknown { name: name.to_owned() })
    }
}
