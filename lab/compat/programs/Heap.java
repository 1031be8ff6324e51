// A map and lists of a million objects, changed and checked.
import java.util.*;

public class Heap {
    public static void main(String[] args) {
        int count = Integer.parseInt(args[0]);
        Map<Integer, List<String>> map = new HashMap<>();
        long seed = 1, sum = 0;
        for (int i = 0; i < count; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            map.computeIfAbsent((int) (seed >>> 33) % (count / 4), k -> new ArrayList<>()).add("value " + i);
        }
        for (int round = 0; round < 3; round++)
            for (Map.Entry<Integer, List<String>> e : map.entrySet()) {
                for (String s : e.getValue()) sum = sum * 31 + s.hashCode();
                e.setValue(new ArrayList<>(e.getValue()));
            }
        TreeMap<Integer, List<String>> sorted = new TreeMap<>(map);
        for (List<String> list : sorted.values()) sum = sum * 31 + list.size();
        System.out.println(count + " values, " + map.size() + " keys, " + sum);
    }
}
