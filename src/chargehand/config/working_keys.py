"""What the keys of workers, tools, checks and memory mean in a team file, in words. Their types are in `shapes`."""

WORKING: dict[str, dict[str, str]] = {
    "workers.*": {
        "description": "what it does; the planner reads this to hand out tasks",
        "team": "another team file, or its folder, from here: that team does its tasks. Beside it only `description`, "
        "`tags`, `fallback` (workers), `concurrency`, `timeout`, `estimate`, `skills`, `examples`, `accept` and "
        "`instances` (a number)",
        "prompt": "what it is told about itself",
        "tags": "words by which a plan may ask for somebody",
        "tools": "names of `tools`, or of those that need no entry: `calculator`, `chart`, `dates`, `sandbox`, the "
        "memory tools, and those for messages",
        "model": "its own model; left out, that of `defaults`",
        "fallback": "who or what steps in when it fails",
        "output_schema": "a JSON Schema its results must have: inline, or `file:schemas/review.json`",
        "rules": "what it must call first, last, or never without leave; each entry is one rule",
        "steps": "as in `defaults`",
        "concurrency": "how many tasks it does at once; 0 is as many as the run allows",
        "timeout": "as in `defaults`",
        "estimate": "what one attempt is expected to use",
        "temperature": "as in `defaults`",
        "max_tokens": "as in `defaults`",
        "remembers": "it has its earlier tasks before its eyes, across runs",
        "may_estimate": "its figures may be its own: what no tool returned counts as its words, not as a gap",
        "every": "after how many turns of the team it works, in the background; it then gets no tasks. Left out: it "
        "works in the turns",
        "skills": "what it can do, in a few words each; a router compares requests with them",
        "examples": "requests that were for it; a router compares and, with enough of them, learns",
        "accept": "names of `checks` that its results must pass",
        "contacts": 'whom it may write to: names, `"tag:NAME"` for everybody with a tag, `"*"` for everybody; or '
        "settings",
        "instances": "how many of it there are, or a list with the model of each; then without `model`",
    },
    "workers.*.fallback": {
        "models": "models to try, in order, when its own does not answer",
        "workers": "workers who step in, in order, when it has failed",
    },
    "workers.*.rules": {
        "run_first": "this tool is called before any other",
        "exit_loop": "after this tool the attempt ends with its result",
        "continue_loop": "after this tool the attempt may not end",
        "constrain_child_tools": "right after one tool only certain others may be called",
        "parent_last_tool": "a tool is called only right after another",
        "conditional": "the result of a tool says what must follow",
        "max_count_per_step": "a tool is called at most so often in one step",
        "required_before_exit": "the attempt does not end before this tool was called",
        "requires_approval": "a person is asked before this tool is called",
    },
    "workers.*.rules.constrain_child_tools": {
        "tool": "the tool that comes first",
        "children": "what may be called right after it",
    },
    "workers.*.rules.parent_last_tool": {
        "tool": "the tool that is bound",
        "parent": "the one it must follow",
    },
    "workers.*.rules.conditional": {
        "tool": "the tool whose result counts",
        "cases": "from a result to the tool that must follow",
        "otherwise": "the tool that follows any other result; left out, any may",
    },
    "workers.*.rules.max_count_per_step": {
        "tool": "the tool that is bound",
        "most": "how often",
    },
    "workers.*.estimate": {
        "usd": "dollars, reserved before an attempt",
        "tokens": "tokens, reserved too",
        "calls": "model calls, reserved too",
        "wall": "how long it takes, for the forecast; left out, no time is forecast",
    },
    "workers.*.contacts": {
        "to": "names, tags or everybody, as in the short form",
        "most": "how many messages it may send for one task; left out, its steps and its money are the only bounds",
    },
    "tools.*": {
        "python": "`module:attribute`, or `file.py:attribute`: a module beside the team file, else an installed one. "
        "The attribute is a function with types and a docstring, a `Tool`, or a function without arguments that says "
        "it returns tools (`-> Tool`, `-> list[Tool]`)",
        "sql": "an SQLite file, a CSV file or a folder of CSV files; it can only be read",
        "documents": "a folder of texts to search",
        "files": "a folder to list and read; brings two tools, `NAME_list_files` and `NAME_read_file`",
        "fetch": "web pages of certain hosts",
        "sandbox": "Python that a model wrote, walled in",
        "calculator": "exact arithmetic",
        "chart": "a chart as SVG",
        "dates": "today, days between, and the like; brings several tools",
        "effect": "what it does to the world; left out, what the tool says of itself",
        "side_effects": "another word for `effect`",
        "timeout": "how long a call may take",
        "cap": "how many bytes of a result the model sees",
        "approve": "whether a person is asked before each call; `true` is `always`, `false` is `never`",
        "embed": "of `documents` only: `auto` (left out, too) compares meanings as well, with the small model on this "
        "machine if it is there; `words` never does",
    },
    "tools.*.fetch": {
        "allow": 'the hosts, such as `[example.com, "*.example.org"]`; left out, all public ones',
    },
    "factory": {
        "tools": "all that a made worker may be given",
        "most_tools": "how many at once",
        "capacity": "how many made workers at the same time",
        "steps": "how many times one may call its model in one attempt",
        "model": "their model; left out, that of `defaults`",
    },
    "memory": {
        "file": "where it is kept, beside the team file; made where it is missing. Left out: `.chargehand/memory.db` "
        "where the command is typed, and for `load_team` whatever it is given, else this process alone",
        "blocks": "by label: small texts that are always before everybody's eyes. One that is only a text is its value",
        "archives": "by name: large stores of texts that are searched. One that is only a text is its description",
    },
    "memory.blocks.*": {
        "value": "what stands in it to begin with",
        "description": "what it is for; whoever sees the block sees this too",
        "limit": "how many characters it may hold",
        "trusted": "it gives instructions. Text from outside (what a tool returned, what another worker wrote) is "
        "refused unless the worker is listed under `tainted`",
        "read_only": "nobody but people changes it",
        "tags": "words by which it is found",
        "share": "what every worker may do with it; `all` is the same as `read`",
        "read": "workers who may only read it, whatever `share` says",
        "append": "workers who may add lines",
        "write": "workers who may change anything",
        "none": "workers who do not see it",
        "tainted": "workers who may put text from outside into it although it is `trusted`",
    },
    "memory.archives.*": {
        "description": "what it holds; whoever may search it reads this",
        "embed": "what compares meanings: `auto` (the small model on this machine if it is there, else words), "
        "`words`, `local:minilm`, `local:multilingual`, a handle such as `openai:text-embedding-3-small`, or a server "
        "with the name of its model: `openai+http://127.0.0.1:8080/v1#name`",
        "add": "a folder, or a file, of texts (`.md`, `.txt`) beside the team file; they are put into it when it is "
        "opened, each once. At most 2,000 files and 32 MiB",
        "tags": "words by which it is found",
        "share": "what every worker may do with it: `read` is to search, `append` and `write` to add to it, too; "
        "`all` is the same as `write`",
        "read": "workers who may only search it",
        "write": "workers who may add to it",
        "none": "workers who may not use it",
    },
    "checks.*": {
        "python": "`checks.py:function` beside the team file, or `module:function`: it gets the result and returns "
        "`True`, or what is wrong",
        "schema": "a JSON Schema: inline, or `file:schemas/order.json`",
        "reviewer": "a worker of the team who is asked",
        "verifier": "`true`, or settings: a model that looks for mistakes",
        "contains": "words that must stand in it",
        "matches": "a regular expression that must be found in it",
        "at_least_words": "how many words there must be",
        "at_most_words": "how many there may be",
        "cites": "it names a source",
        "has_number": "there is a number in it",
    },
    "checks.*.verifier": {
        "prompt": "what it is told, in the place of ours",
        "model": "its model; left out, the `judge`",
    },
}
"""By the path of a section, and the key in it."""
