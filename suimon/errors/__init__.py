"""Every error Suimon raises on purpose, and how each one speaks.

An error has three parts, as PostgreSQL's have: the fact in one line with the identifier in quotes,
the detail (what was found), and the hint (what to do). Each class has a stable `code` that scripts
and documents may rely on, and the `exit_code` the command line leaves with. Names may be caught;
texts may change.

    SuimonError
    ├── DatabaseUnavailable     SUI-1001   no connection, or the connection broke and did not return
    ├── SchemaMismatch          SUI-1002   the database's schema is not the one of this version
    ├── StoreUnavailable        SUI-1004   an object store does not answer, or not with what was put
    ├── DefinitionError         SUI-2001   a pipeline is wrong; holds every `Mistake` at once
    ├── LoadFailed              SUI-2002   the code below PATH could not be read
    ├── RequestRefused                     somebody asked for something that cannot be done
    │   ├── UnknownPipeline     SUI-3001
    │   ├── RunNotFound         SUI-3002
    │   ├── InputRefused        SUI-3003   names the path of the field
    │   ├── Conflict            SUI-3004   the state has changed, or the thing exists already
    │   ├── QueueFull           SUI-3005   nothing was stored; ask again later
    │   │   └── QuotaExceeded   SUI-3008   a quota of runs a day or month has less left than asked
    │   ├── NotThere            SUI-3006   a trigger, a pool or another thing that nobody knows
    │   ├── AddressRefused      SUI-3007   an address that the engine does not connect to
    │   └── StoragePressure     SUI-3009   the store is nearly full and this is large
    ├── DataRefused                        a value or a file that cannot be carried unharmed
    │   ├── InvalidJson         SUI-4001   NaN, NUL, lone surrogate, ... with its JSON path
    │   ├── PayloadTooLarge     SUI-4002
    │   ├── FileRefused         SUI-4003   names file, row and byte
    │   └── FileChanged         SUI-4004   the file is not the one the run was started for
    ├── FanoutError                        a fan-out that cannot keep its promise
    │   ├── ItemsChanged        SUI-5001   a re-read list differs from the frozen manifest
    │   ├── DuplicateKeys       SUI-5002
    │   └── MergeFailed         SUI-5003   more children failed than the merge tolerates
    ├── SecretError                        a secret that cannot be had; no message holds a value
    │   ├── SecretMissing       SUI-8001   nothing of that name is stored, set or readable
    │   ├── SecretKeyMissing    SUI-8002   it is stored, and this process has no key
    │   ├── SecretKeyWrong      SUI-8003   not the key, or not what was stored under this name
    │   ├── SecretNotGranted    SUI-8004   a task asked for what it was not granted
    │   └── SecretTooShort      SUI-8005   it could not be taken out of a log
    ├── Fatal                   SUI-6001   raised by tasks: end this run, do not retry
    │   └── CallRefused         SUI-6004   an HTTP vertex got an answer that another try cannot mend
    ├── CallFailed              SUI-6003   an HTTP vertex got no good answer; it is tried again
    └── Cancelled               SUI-6002   raised inside a task whose run is being cancelled
"""

from __future__ import annotations

from suimon.errors.asked import (
    AddressRefused,
    Conflict,
    DataRefused,
    FileChanged,
    FileRefused,
    InputRefused,
    InvalidJson,
    NotThere,
    PayloadTooLarge,
    QueueFull,
    QuotaExceeded,
    RequestRefused,
    RunNotFound,
    StoragePressure,
    UnknownPipeline,
)
from suimon.errors.base import (
    EXIT_CANCELLED,
    EXIT_CONFLICT,
    EXIT_FORBIDDEN,
    EXIT_GAVE_UP,
    EXIT_INTERRUPTED,
    EXIT_LIMITED,
    EXIT_NEGATIVE,
    EXIT_NOT_FOUND,
    EXIT_PARTLY,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    EXIT_VERSION,
    DatabaseUnavailable,
    DefinitionError,
    LoadFailed,
    Mistake,
    SchemaMismatch,
    StoreUnavailable,
    SuimonError,
)
from suimon.errors.lived import (
    CallFailed,
    CallRefused,
    Cancelled,
    DuplicateKeys,
    FanoutError,
    Fatal,
    ItemsChanged,
    MergeFailed,
    SecretError,
    SecretKeyMissing,
    SecretKeyWrong,
    SecretMissing,
    SecretNotGranted,
    SecretTooShort,
)

__all__ = [
    "EXIT_CANCELLED",
    "EXIT_CONFLICT",
    "EXIT_FORBIDDEN",
    "EXIT_GAVE_UP",
    "EXIT_INTERRUPTED",
    "EXIT_LIMITED",
    "EXIT_NEGATIVE",
    "EXIT_NOT_FOUND",
    "EXIT_PARTLY",
    "EXIT_UNREACHABLE",
    "EXIT_USAGE",
    "EXIT_VERSION",
    "AddressRefused",
    "CallFailed",
    "CallRefused",
    "Cancelled",
    "Conflict",
    "DataRefused",
    "DatabaseUnavailable",
    "DefinitionError",
    "DuplicateKeys",
    "FanoutError",
    "Fatal",
    "FileChanged",
    "FileRefused",
    "InputRefused",
    "InvalidJson",
    "ItemsChanged",
    "LoadFailed",
    "MergeFailed",
    "Mistake",
    "NotThere",
    "PayloadTooLarge",
    "QueueFull",
    "QuotaExceeded",
    "RequestRefused",
    "RunNotFound",
    "SchemaMismatch",
    "SecretError",
    "SecretKeyMissing",
    "SecretKeyWrong",
    "SecretMissing",
    "SecretNotGranted",
    "SecretTooShort",
    "StoragePressure",
    "StoreUnavailable",
    "SuimonError",
    "UnknownPipeline",
]
