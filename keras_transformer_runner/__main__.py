"""`python -m keras_transformer_runner`, which is `keras-transformer-run`."""

import sys

from keras_transformer_runner.command import main

sys.exit(main())
