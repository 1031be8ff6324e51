(* Records as OCaml values in a hash table. See ../turns.py. *)
let n = int_of_string Sys.argv.(1)
let m = 2147483647
let start i = ((i * 48271) + 11) mod m
let first i = Printf.sprintf "%08x" (start i * 16807 mod m)

let text i =
  let out = Buffer.create 1160 and x = ref (start i) in
  for j = 0 to 63 do
    x := !x * 16807 mod m;
    Buffer.add_string out (Printf.sprintf "%08x-field-%02d;" !x j)
  done;
  Buffer.add_string out (first i);
  Buffer.contents out

let fail why = prerr_endline ("MISMATCH: " ^ why); exit 1
let total = ref 0
let records : (int, string * int ref) Hashtbl.t = Hashtbl.create n

let touch hot turn =
  for i = 0 to n - 1 do
    let block = i / 32 in
    let is_hot = block * 7919 mod 1000 < 400 in
    if (hot && is_hot) || ((not hot) && (not is_hot) && block mod 10 = turn mod 10) then begin
      let text, count = Hashtbl.find records i in
      if String.sub text 0 8 <> first i || String.sub text (String.length text - 8) 8 <> first i then
        fail (Printf.sprintf "record %d" i);
      if i mod 4 = 0 then (incr count; incr total)
    end
  done

let () =
  for i = 0 to n - 1 do Hashtbl.replace records i (text i, ref 0) done;
  print_endline "k";
  try
    while true do
      let line = read_line () in
      let what = String.sub line 0 1 in
      if what = "q" then begin
        let sum = ref 0 in
        for i = 0 to n - 1 do
          let kept, count = Hashtbl.find records i in
          if kept <> text i then fail (Printf.sprintf "record %d" i);
          sum := !sum + !count
        done;
        if !sum <> !total then fail "counts";
        exit 0
      end;
      touch (what = "r") (int_of_string (String.sub line 2 (String.length line - 2)));
      print_endline what
    done
  with End_of_file -> ()
