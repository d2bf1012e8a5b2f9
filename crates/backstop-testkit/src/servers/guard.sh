# Holds one server for a test process: guard.sh FOLDER SIGNAL SERVER [ARGUMENT...]
#
# Orders come on standard input, one word a line. When the input ends the test process is gone,
# however it ended: the server is stopped and its folder removed. SIGNAL is the one by which this
# kind of server stops in good order.
folder=$1 signal=$2
shift 2
pid=

end() {
  [ -n "$pid" ] || return 0
  kill -s "$1" "$pid"
  wait "$pid"
  pid=
}

while read -r order; do
  case $order in
    start) "$@" >>"$folder/log" 2>&1 & pid=$! && echo "$pid" ;;
    stop) end "$signal"; echo ended ;;
    kill) end KILL; echo ended ;;
  esac
done
end "$signal"
rm -rf "$folder"
