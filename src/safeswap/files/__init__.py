"""Files and dataframes: formats, reading, writing, describing, atomic output.

===============  =============================================================================
``read``         ``read``: any file or dataframe to microdata
``formats``      ``FORMATS``: one row per format; ``format_of`` a file, ``Limits`` on its size
``describe``     ``describe``: attributes, levels and small cells, no record
``infer``        ``infer_schema``: guess what the columns are
``schema_file``  ``read_schema``, ``write_schema``: a schema as TOML
``frames``       ``to_frame``: back to the caller's own type of dataframe
``write``        ``write_csv``, ``write_parquet``, ``write`` by suffix
``labelled``     ``read_labelled``, ``write_dta``, ``write_sav``: Stata, SPSS, SAS
``keyfile``      ``read_key``, ``write_key``
``atomic``       ``atomic_write``, ``atomic_directory``: complete or not at all
===============  =============================================================================
"""
