"""Reading and writing: files, frames, descriptions, projects, keys, bundles.

Import from the modules; each says what it promises.

===================  ==============================================================================
``read``             ``read``: any file or dataframe into microdata
``describe``         ``describe``: attributes, levels and small cells, no record
``infer``            ``infer_schema``: what the columns may be
``schema_file``      ``read_schema``, ``write_schema``: a schema as TOML
``frames``           ``to_frame``: back to the caller's own type of dataframe
``write``            ``write_csv``, ``write_parquet``, ``write`` by suffix
``labelled_write``   ``write_dta``, ``write_sav``: Stata and SPSS with labels
``webswap``          ``Project``, ``open_project``, ``new_project``
``keyfile``          ``read_key``, ``write_key``
``atomic``           ``atomic_write``, ``atomic_directory``: complete or not at all
``leftovers``        ``sweep``: what a killed run left behind goes
``limits``           ``Limits``: how much a file may ask of the machine
===================  ==============================================================================
"""
