"""What the `dflash` proposers of all back ends share: no tensor library is imported here."""
