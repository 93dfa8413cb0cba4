"""The process from which Spark forks its Python workers: it imports once what each of them would import again."""

from pyspark.daemon import manager

import safeswap.arrays.keyed
import safeswap.arrays.order
import safeswap.engines.identity
import safeswap.engines.spark.exchange
import safeswap.files.identifiers  # noqa: F401

if __name__ == "__main__":
    manager()
