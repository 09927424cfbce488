//! Intel's syntax, as iced writes it, with the numbers of `objdump -M intel`.

use iced_x86::{FormatMnemonicOptions, Formatter, Instruction, IntelFormatter};

/// Writes instructions.
pub(crate) struct Intel {
    formatter: IntelFormatter,
}

impl Intel {
    pub fn new() -> Intel {
        let mut formatter = IntelFormatter::new();
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_space_after_operand_separator(false);
        options.set_rip_relative_addresses(true);
        options.set_show_branch_size(false);
        Intel { formatter }
    }

    /// Appends the instruction; gives back where its operands begin in `out` (its end when there are none).
    pub fn write(&mut self, instruction: &Instruction, out: &mut Vec<u8>) -> usize {
        self.formatter.format_mnemonic_options(
            instruction,
            &mut super::Output(out),
            FormatMnemonicOptions::NONE,
        );
        if self.formatter.operand_count(instruction) == 0 {
            return out.len();
        }
        out.push(b' ');
        let operands_at = out.len();
        self.formatter.format_all_operands(instruction, &mut super::Output(out));
        operands_at
    }
}
