/**
 * The Python program that runs in a function's process. Calls arrive on descriptor 3 and answers are sent on descriptor
 * 4, one JSON object a line. The function's own output goes to descriptors 1 and 2, and the agent keeps the end of it.
 * The `opentela` module that this program defines replaces the client's module. So a file that was written for
 * `@opentela.function` loads without the client, and starts nothing.
 */
export const HARNESS = String.raw`
import importlib.util, json, os, sys, traceback, types

ERROR_CHARS = 900

def said(error):
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.endswith("function.py")]
    where = f" (line {own[-1].lineno}, in {own[-1].name})" if own else ""
    return (text[-ERROR_CHARS:] + where)[-ERROR_CHARS:]

def stand_in():
    made = {}
    module = types.ModuleType("opentela")

    def nowhere(*_, **__):
        raise RuntimeError("map() starts a batch: call it below if __name__ == '__main__'")

    def function(load=None, **_):
        def mark(infer):
            made[infer.__name__] = (load, infer)
            infer.map = nowhere
            return infer

        return mark

    # Other parts of the package, as opentela.seal, are the installed ones.
    installed = importlib.util.find_spec("opentela")
    module.__path__ = list(installed.submodule_search_locations or []) if installed else []
    module.function = function
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

def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    asks, answers = os.fdopen(3, "rb"), os.fdopen(4, "wb")

    def answer(value):
        answers.write(json.dumps(value, allow_nan=False).encode() + b"\n")
        answers.flush()

    try:
        made = stand_in()
        spec = importlib.util.spec_from_file_location("function", os.path.join(os.getcwd(), "function.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules["function"] = module
        spec.loader.exec_module(module)
        load, infer = chosen(module, made, name)
        state = load() if load else None
    except Exception as error:
        traceback.print_exc()
        answer({"v": 1, "loaded": False, "error": said(error)})
        return
    answer({"v": 1, "loaded": True})
    for raw in asks:
        ask = json.loads(raw)
        lines = ask["lines"]
        try:
            outputs = list(infer(state, lines))
            if len(outputs) != len(lines):
                raise ValueError(f"the function got {len(lines)} lines and returned {len(outputs)} results")
            answer({"id": ask["id"], "outputs": outputs})
        except Exception as error:
            traceback.print_exc()
            answer({"id": ask["id"], "error": said(error)})

main()
`;
