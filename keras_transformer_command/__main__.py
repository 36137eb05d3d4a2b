"""`python -m keras_transformer_command`."""

import sys

from keras_transformer_command import main

sys.exit(main())
