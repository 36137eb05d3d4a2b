"""The command `new`: a kit, ready to run."""

import argparse

from keras_transformer.kits.contents import KITS

_FOLDERS = {
    "serving": "a model's folder that `export --to savedmodel` wrote; its newest version is copied",
    "web": "a folder that `export --to litert --lengths 32,128,512` wrote",
}
_FOLDER = "a folder that `export --to litert` wrote"


def add_new(add_command):
    """Adds the command `new`.

    Args:
        add_command: Function of a name, a text and a function, which gives the parser of a new
            command.
    """
    command = add_command(
        "new",
        "Write a kit: what runs an artefact in a browser, on a server or in an app; or the "
        "examples.",
        run=new,
    )
    command.add_argument("--list", action=_List, nargs=0, help="say which there are, and exit")
    kits = command.add_subparsers(title="kits", required=True, metavar="KIT", dest="kit")
    for name, kit in KITS.items():
        parser = kits.add_parser(name, help=kit.what, description=f"Write {kit.what}.")
        parser.add_argument("output", metavar="DIR", help="where: a new folder, or an empty one")
        if kit.model:
            parser.add_argument(
                "--folder",
                metavar="FOLDER",
                help=f"{_FOLDERS.get(name, _FOLDER)}: copied to {kit.model} in DIR",
            )


def new(arguments):
    """Writes a kit and says where its first commands are."""
    from keras_transformer.kits import new_kit

    folder = getattr(arguments, "folder", None)
    kit = new_kit(arguments.kit, arguments.output, folder)
    held = f", with {folder} in {kit.model}" if folder else ""
    print(f"{arguments.output}: {kit.what}{held}")
    print(f"{arguments.output}/{kit.readme} has the first commands")


class _List(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        width = max(map(len, KITS))
        print("\n".join(f"{name:{width}}  {kit.what}" for name, kit in KITS.items()))
        parser.exit()
