/**
 * The Python program that runs in a function's process. Calls arrive on descriptor 3 and answers are sent on descriptor
 * 4, one JSON object a line. The function's own output goes to descriptors 1 and 2, and the agent keeps the end of it.
 *
 * A function's file is a bundle of the Python client, or Python source. A bundle contains the client's library, which
 * opens the bundle and runs its calls. For source this program defines a module `opentela`, so that a file that was
 * written for `@opentela.function` loads without the client, and starts nothing.
 */
export const HARNESS = String.raw`
import base64, functools, importlib.util, json, os, sys, traceback, types

ERROR_CHARS = 900

def said(error):
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith("function.py")]
    where = f" (line {own[-1].lineno}, in {own[-1].name})" if own else ""
    return (text[-ERROR_CHARS:] + where)[-ERROR_CHARS:]

class Elsewhere:
    """Stands for the client's other names, which start runs."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        raise RuntimeError(f"{name}() starts a run: call it below if __name__ == '__main__'")

def stand_in():
    made = {}
    module = types.ModuleType("opentela")

    def function(infer=None, /, load=None, context=None, batch_size=None, **_):
        def mark(infer):
            def all_of(state, lines):
                first = () if load is None else (state,)
                if batch_size is not None:
                    return infer(*first, lines)
                return [infer(*first, line) for line in lines]

            made[infer.__name__] = (load and functools.partial(load, **(context or {})), all_of)
            infer.map = lambda *_, **__: Elsewhere().map
            return infer

        return mark if infer is None else mark(infer)

    # Other parts of the package, as opentela.seal, are the installed ones.
    installed = importlib.util.find_spec("opentela")
    module.__path__ = list(installed.submodule_search_locations or []) if installed else []
    module.function = function
    module.Client = module.Executor = Elsewhere
    sys.modules["opentela"] = module
    return made

def chosen(module, made, name):
    if name:
        if name in made:
            return made[name]
        if callable(getattr(module, name, None)):
            return getattr(module, "load", None), getattr(module, name)
        raise AttributeError(f"the file has no function {name}")
    if callable(getattr(module, "infer", None)) and "infer" not in made:
        return getattr(module, "load", None), module.infer
    if len(made) == 1:
        return next(iter(made.values()))
    raise AttributeError("the file has no infer(state, lines), and not exactly one @opentela.function: name one, as in function:FILE:NAME")

class Source:
    """A file of Python source."""

    def __init__(self, path, name):
        made = stand_in()
        spec = importlib.util.spec_from_file_location("function", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["function"] = module
        spec.loader.exec_module(module)
        load, self.infer = chosen(module, made, name)
        self.state = load() if load else None

    def call(self, lines):
        outputs = list(self.infer(self.state, lines))
        if len(outputs) != len(lines):
            raise ValueError(f"the function got {len(lines)} lines and returned {len(outputs)} results")
        return outputs, {}

def opened(path, name):
    with open(path, "rb") as file:
        text = file.read()
    try:
        bundle = json.loads(text)
    except ValueError:
        return Source(path, name)
    if not isinstance(bundle, dict) or bundle.get("opentela_function") != 1:
        return Source(path, name)
    library = os.path.join(os.getcwd(), "library.zip")
    with open(library, "wb") as file:
        file.write(base64.b64decode(bundle["library"]))
    sys.path.insert(0, library)
    from opentela._worker import open_bundle

    return open_bundle(bundle, os.getcwd())

def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    asks, answers = os.fdopen(3, "rb"), os.fdopen(4, "wb")

    def answer(value):
        answers.write(json.dumps(value, allow_nan=False).encode() + b"\n")
        answers.flush()

    try:
        function = opened(os.path.join(os.getcwd(), "function.py"), name)
    except Exception as error:
        traceback.print_exc()
        answer({"v": 1, "loaded": False, "error": said(error)})
        return
    answer({"v": 1, "loaded": True})
    for raw in asks:
        ask = json.loads(raw)
        try:
            outputs, failed = function.call(ask["lines"])
            # A bundle of an earlier client has no files.
            files = getattr(function, "files", None)
            answer({"id": ask["id"], "outputs": outputs, **({"failed": failed} if failed else {}), **({"files": files} if files else {})})
        except Exception as error:
            traceback.print_exc()
            answer({"id": ask["id"], "error": said(error)})

main()
`;
