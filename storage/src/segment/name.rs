//! Names of segment files.

use weir_model::Offset;

/// Which file of a partition: the first offset it stands for, and how often its rows were merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// First offset of the stretch.
    pub base_offset: Offset,
    /// 0 as sealed; a merged segment has one more than the largest of its inputs. So a merged file never takes the place of
    /// an input that begins at the same offset.
    pub generation: u32,
}

impl From<Offset> for SegmentName {
    fn from(base_offset: Offset) -> Self {
        Self { base_offset, generation: 0 }
    }
}

impl SegmentName {
    /// Kafka's way to name files, the base offset in twenty digits; `00000000000000000000.1.log` from generation 1 on. Kafka
    /// takes the base offset from before the first dot and the kind from behind the last one.
    pub(super) fn file(self, extension: &str) -> String {
        let Self { base_offset, generation } = self;
        match generation {
            0 => format!("{base_offset:020}.{extension}"),
            _ => format!("{base_offset:020}.{generation}.{extension}"),
        }
    }

    /// The reverse of [`Self::file`]: the name and the extension. `None` for a name that this does not give.
    pub(super) fn parse(file: &str) -> Option<(Self, &str)> {
        let (stem, extension) = file.rsplit_once('.')?;
        let (base, generation) = match stem.split_once('.') {
            Some((base, generation)) => (base, generation.parse().ok()?),
            None => (stem, 0),
        };
        let name = Self { base_offset: Offset::new(base.parse().ok()?)?, generation };
        (name.file(extension) == file).then_some((name, extension))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_generation_0_is_kafkas() {
        let base_offset = Offset::new(4200).expect("not negative");
        for (generation, file) in
            [(0, "00000000000000004200.log"), (1, "00000000000000004200.1.log"), (12, "00000000000000004200.12.log")]
        {
            let name = SegmentName { base_offset, generation };
            assert_eq!(name.file("log"), file);
            assert_eq!(SegmentName::parse(file), Some((name, "log")));
        }
    }

    #[test]
    fn a_name_of_somebody_else_is_not_taken_for_ours() {
        for file in [
            "4200.log",
            "00000000000000004200.0.log",
            "00000000000000004200.+1.log",
            "-0000000000000004200.log",
            "notes.log",
            "LOCK",
            ".log",
        ] {
            assert_eq!(SegmentName::parse(file), None, "{file}");
        }
    }
}
