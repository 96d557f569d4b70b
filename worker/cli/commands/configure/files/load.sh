# The job of pipelines/orders.yaml. Its argument is the day of the run. Exit code 0 means success.
echo "loading the orders of $1"
