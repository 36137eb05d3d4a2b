"""`python -m keras_transformer_runner.server`, which is `keras-transformer-serve`."""

import sys

from keras_transformer_runner.server.command import main

sys.exit(main())
