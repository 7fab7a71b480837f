"""Order lanes: operations of one order key run one after the other."""
