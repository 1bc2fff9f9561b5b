"""What each character looks like to a reader of marks. Made by scripts/build_fold_table.py of Unicode 18.0.0; not edited by hand.

A change of it is a new `MARKS_VERSION`.
"""

from __future__ import annotations

UNICODE = "18.0.0"

SHAPES: dict[str, str] = {
    "": (
        "0+8 e+d 1f 7f+5 86+19 ad 300+6f 378+1 380+3 38b 38d 3a2 483+6 530 557 590+2d 5bf 5c1+1 5c4+1 5c7+8 5eb+3 "
        "5f5+10 610+a 61c 64b+14 670 6d6+7 6df+5 6e7+1 6ea+3 70e+1 711 730+1c 7a6+a 7b2+d 7eb+8 7fb+2 816+3 81b+8 "
        "825+2 829+6 83f 859+4 85f 86b+4 890+f 8ca+38 93a 93c 941+7 94d 951+6 962+1 981 984 98d+1 991+1 9a9 9b1 9b3+2 "
        "9ba+2 9c1+5 9c9+1 9cd 9cf+7 9d8+3 9de 9e2+3 9fe+4 a04 a0b+3 a11+1 a29 a31 a34 a37 a3a+3 a41+17 a5d a5f+6 "
        "a70+1 a75 a77+b a84 a8e a92 aa9 ab1 ab4 aba+2 ac1+7 aca acd+2 ad1+e ae2+3 af2+6 afa+7 b04 b0d+1 b11+1 b29 b31 "
        "b34 b3a+2 b3f b41+5 b49+1 b4d+9 b58+3 b5e b62+3 b78+a b84 b8b+2 b91 b96+2 b9b b9d ba0+2 ba5+2 bab+2 bba+3 bc0 "
        "bc3+2 bc9 bcd+2 bd1+5 bd8+d bfb+5 c04 c0d c11 c29 c3a+2 c3e+2 c45+12 c5b c5e+1 c62+3 c70+6 c81 c8d c91 ca9 "
        "cb4 cba+2 cbf cc5+1 cc9 ccc+8 cd7+4 cdf ce2+3 cf0 cf4+d d0d d11 d3b+1 d41+4 d49 d4d d50+3 d62+3 d80+1 d84 "
        "d97+2 db2 dbc dbe+1 dc7+7 dd2+5 de0+5 df0+1 df5+b e31 e34+a e47+7 e5c+24 e83 e85 e8b ea4 ea6 eb1 eb4+8 ebe+1 "
        "ec5 ec7+8 eda+1 ee0+1f f18+1 f35 f37 f39 f48 f6d+11 f80+4 f86+1 f8d+30 fc6 fcd fdb+24 102d+3 1032+5 1039+1 "
        "103d+1 1058+1 105e+2 1071+3 1082 1085+1 108d 109d 10c6 10c8+4 10ce+1 115f+1 1249 124e+1 1257 1259 125e+1 1289 "
        "128e+1 12b1 12b6+1 12bf 12c1 12c6+1 12d7 1311 1316+1 135b+4 137d+2 139a+5 13f6+1 13fe+1 169d+2 16f9+6 1712+2 "
        "1716+8 1732+1 1737+8 1752+d 176d 1771+e 17b4+1 17b7+6 17c6 17c9+a 17dd+2 17ea+5 17fa+5 180b+4 181a+5 1879+6 "
        "1885+1 18a9 18ab+4 18f6+9 191f+3 1927+1 192c+3 1932 1939+6 1941+2 196e+1 1975+a 19ac+3 19ca+5 19db+2 1a17+1 "
        "1a1b+2 1a56 1a58+8 1a62 1a65+7 1a73+c 1a8a+5 1a9a+5 1aae+55 1b34 1b36+4 1b3c 1b42 1b4d 1b6b+8 1b80+1 1ba2+3 "
        "1ba8+1 1bab+2 1be6 1be8+1 1bed 1bef+2 1bf4+7 1c2c+7 1c36+4 1c4a+2 1c8b+4 1cbb+1 1cc8+a 1cd4+c 1ce2+6 1ced "
        "1cf4 1cf8+1 1cfb+4 1dc0+3f 1f16+1 1f1e+1 1f46+1 1f4e+1 1f58 1f5a 1f5c 1f5e 1f7e+1 1fb5 1fc5 1fd4+1 1fdc "
        "1ff0+1 1ff5 1fff 200b+4 202a+4 2060+f 2072+1 20c5+3a 218c+3 242a+15 244b+14 2b74+1 2cef+2 2cf4+4 2d26 2d28+4 "
        "2d2e+1 2d68+6 2d71+e 2d97+8 2da7 2daf 2db7 2dbf 2dc7 2dcf 2dd7 2ddf+20 2e5e+1 2e64+1b 2e9a 2ef4+b 2fd6+19 "
        "302a+3 3040 3097+3 3100+4 3130 3164 318f 31e6+8 321f a48d+2 a4c7+8 a62c+13 a66f+3 a674+9 a69e+1 a6f0+1 a6f8+7 "
        "a7de+3 a7e3+d a802 a806 a80b a825+1 a82c+3 a83a+5 a878+7 a8c4+9 a8da+17 a8ff a926+7 a947+a a954+a a97d+5 a9b3 "
        "a9b6+3 a9bc+1 a9ce a9da+3 a9e5 a9ff aa29+5 aa31+1 aa35+a aa43 aa4c aa4e+1 aa5a+1 aa7c aab0 aab2+2 aab7+1 "
        "aabe+1 aac1 aac3+17 aaec+1 aaf6+a ab07+1 ab0f+1 ab17+8 ab27 ab2f ab6e+1 abe5 abe8 abed+2 abfa+5 d7a4+b d7c7+3 "
        "d7fc+2103 fa6e+1 fada+25 fb07+b fb18+4 fb1e fb37 fb3d fb3f fb42 fb45 fdd0+1f fe00+f fe1a+15 fe53 fe67 fe6c+3 "
        "fe75 fefd+3 ffa0 ffbf+2 ffc8+1 ffd0+1 ffd8+1 ffdd+2 ffe7 ffef+10 1000c 10027 1003b 1003e 1004e+1 1005e+21 "
        "100fb+4 10103+3 10134+2 1018f 1019d+2 101a1+2e 101fd+82 1029d+2 102d1+f 102fc+3 10324+8 1034b+4 10376+9 1039e "
        "103c4+3 103d6+29 1049e+1 104aa+5 104d4+3 104fc+3 10528+7 10564+a 1057b 1058b 10593 10596 105a2 105b2 105ba "
        "105bd+2 105f4+b 10737+8 10756+9 10768+17 10786 107b1 107c0+3f 10806+1 10809 10836 10839+2 1083d+1 10856 "
        "1089f+7 108b0+2f 108f3 108f6+4 1091c+2 1093a+4 1095a+25 109b8+3 109d0+1 10a01+e 10a14 10a18 10a36+9 10a49+6 "
        "10a59+6 10aa0+1f 10ae5+5 10af7+8 10b36+2 10b56+1 10b73+4 10b92+6 10b9d+b 10bb0+4f 10c49+36 10cb3+c 10cf3+6 "
        "10d24+b 10d3a+5 10d66+7 10d86+7 10d90+cf 10e7f 10eaa+2 10eae+1 10eb2+f 10ec8 10ecb+4 10eef+10 10f28+7 10f46+a "
        "10f5a+15 10f82+3 10f8a+25 10fcc+13 10ff7+8 11001 11038+e 1104e+3 11070 11073+1 11076+b 110b3+3 110b9+1 110bd "
        "110c2+d 110e9+6 110fa+8 11127+4 1112d+8 11148+7 11173 11177+a 111b6+8 111c9+3 111cf 111e0 111f5+a 11212 "
        "1122f+2 11234 11236+1 1123e 11241+3e 11287 11289 1128e 1129e 112aa+5 112df 112e3+c 112fa+7 11304 1130d+1 "
        "11311+1 11329 11331 11334 1133a+2 11340 11345+1 11349+1 1134e+1 11351+5 11358+4 11364+1b 1138a 1138c+1 1138f "
        "113b6 113bb+6 113c3+1 113c6 113cb 113ce 113d0 113d2 113d6 113d9+26 11438+7 11442+2 11446 1145c 1145e 11462+1d "
        "114b3+5 114ba 114bf+1 114c2+1 114c8+7 114da+a5 115b2+5 115bc+1 115bf+1 115dc+23 11633+7 1163d 1163f+1 11645+a "
        "1165a+5 1166d+12 116ab 116ad 116b0+5 116b7 116ba+5 116ca+5 116e4+1b 1171b+4 11722+3 11727+8 11747+b8 1182f+8 "
        "11839+1 1183c+63 118f3+b 11907+1 1190a+1 11914 11917 11936 11939+3 1193e 11943 11947+8 1195a+45 119a8+1 "
        "119d4+7 119e0 119e5+1a 11a01+9 11a33+5 11a3b+3 11a47+8 11a51+5 11a59+2 11a8a+c 11a98+1 11aa3+c 11af9+6 "
        "11b0b+55 11b62+2 11b66 11b68+57 11be2+d 11bfa+5 11c09 11c30+d 11c3f 11c46+9 11c6d+2 11c90+18 11caa+6 11cb2+1 "
        "11cb5+4a 11d07 11d0a 11d31+14 11d47+8 11d5a+5 11d66 11d69 11d8f+3 11d95 11d97 11d99+6 11daa+5 11ddc+3 11dea+6 "
        "11df2+ed 11ef3+1 11ef9+8 11f11 11f36+7 11f40 11f42 11f5a+55 11fb1+e 11ff2+c 1239a+65 12544+b 12687+908 "
        "12ff3+c 13430+10 13447+18 143fb+4 14647+1ab8 1611e+b 1612d+2 1613a+6c5 16a39+6 16a5f 16a6a+3 16abf 16aca+5 "
        "16aee+6 16af6+9 16b30+6 16b46+9 16b5a 16b62 16b78+4 16b90+1af 16d7a+c5 16e9b+4 16eb9+1 16ed4+2b 16f4b+4 "
        "16f88+a 16fa0+3f 16fe4+b 16ff7+8 18cdb+23 18d21+5e 18df3+c 19192+d 191d3+1e1c 1aff4 1affc 1afff 1b129+8 "
        "1b133+1c 1b153+1 1b156+d 1b169+6 1b2fc+903 1bc6b+4 1bc7d+2 1bc89+6 1bc9a+1 1bc9d+1 1bca0+f5f 1ccfd+2 1ceb4+5 "
        "1ced1 1ced5+7 1cefe+51 1cfc4+3b 1d0f6+9 1d127+1 1d167+2 1d173+f 1d185+6 1d1aa+3 1d242+2 1d246+9 1d25b+1 "
        "1d282+3d 1d2d4+b 1d2f4+b 1d357+8 1d379+86 1d455 1d49d 1d4a0+1 1d4a3+1 1d4a7+1 1d4ad 1d4ba 1d4bc 1d4c4 1d506 "
        "1d50b+1 1d515 1d51d 1d53a 1d53f 1d545 1d547+2 1d551 1d6a7 1d7cc+1 1da00+36 1da3b+31 1da75 1da84 1da8c+73 "
        "1db1d+3e2 1df82+d 1df97+35 1e000+2f 1e06e+91 1e12d+9 1e13e+1 1e14a+3 1e150+13f 1e2ae+11 1e2ec+3 1e2fa+4 "
        "1e300+1cf 1e4ec+3 1e4fa+d5 1e5ee+1 1e5fb+3 1e600+bf 1e6df 1e6e3 1e6e6 1e6ee+1 1e6f5+8 1e700+df 1e7e7 1e7ec "
        "1e7ef 1e7ff 1e8c5+1 1e8d0+2f 1e944+6 1e94c+3 1e95a+3 1e960+310 1ecb5+4b 1ed3e+c1 1ee04 1ee20 1ee23 1ee25+1 "
        "1ee28 1ee33 1ee38 1ee3a 1ee3c+5 1ee43+3 1ee48 1ee4a 1ee4c 1ee50 1ee53 1ee55+1 1ee58 1ee5a 1ee5c 1ee5e 1ee60 "
        "1ee63 1ee65+1 1ee6b 1ee73 1ee78 1ee7d 1ee7f 1ee8a 1ee9c+4 1eea4 1eeaa 1eebc+33 1eef2+10d 1f02c+3 1f094+b "
        "1f0af+1 1f0c0 1f0d0 1f0f6+9 1f1af+36 1f203+c 1f23c+3 1f249+6 1f252+d 1f266+99 1f6da+1 1f6ed+2 1f6fd+2 1f7dc+3 "
        "1f7ec+3 1f80c+3 1f848+7 1f85a+5 1f888+7 1f8ae+1 1f8bc+3 1f8c2+d 1f8d9+26 1fa58+7 1fa6e+1 1fa7d+2 1fac7 "
        "1fac9+2 1fade 1faec+2 1fafb+4 1fb93 1fbfb+404 2a6e0+1f 2b81f 2ceae+1 2ebe1+e 2ee5e+9a1 2fa1e+5e1 3134b+4 "
        "3347a+9b85 3fc40+d03bf"
    ),
    "\n": "a+3 1c+2 85 2028+1",
    " ": "9 20 a0 1680 2000+a 202f 205f 2800 3000",
    "/": "2f 1735 2041 2044 2215 2571 27cb 29f8 2afb 2f03 3033 30ce 31d3 32e8 4e3f ff0f ff89 1d23a 1f67c",
    ":": (
        "3a 2d0 2f8 589 5c3 703+1 903 a83 b83 1361 1365 16ec 1803 1809 205a 2236 2982 2e2c a4fd a789 fe13 fe30 fe55 "
        "ff1a 10781"
    ),
    ";": "3b 37e 61b 204f 2e35 fe14 fe54 ff1b",
    "<": (
        "3c ab 2c2 1438 16b2 2039 226a 226e 227a 2280 22d6 22d8 2329 276c 276e 2770 27e8 27ea 2991 29fc 2a79 2af7 3008 "
        "300a fe3d fe3f fe64 ff1c 1d236"
    ),
    ">": (
        "3e bb 2c3 1433 203a 226b 226f 227b 2281 22d7 22d9 232a 276d 276f 2771 27e9 27eb 2992 29fd 2a7a 2af8 3009 300b "
        "fe3e fe40 fe65 ff1e 16f3f 1d237"
    ),
    "[": (
        "5b 2045 2308 230a 23a1+2 2772 27c5 27e6 27ec 298b 298d 298f 2997 2e22 2e24 2e26 2e55 2e57 300c 300e 3010 3014 "
        "3016 3018 301a fe17 fe39 fe3b fe41 fe43 fe47 fe5d ff3b ff62"
    ),
    "]": (
        "5d 2046 2309 230b 23a4+2 2773 27c6 27e7 27ed 298c 298e 2990 2998 2e23 2e25 2e27 2e56 2e58 300d 300f 3011 3015 "
        "3017 3019 301b fe18 fe3a fe3c fe42 fe44 fe48 fe5e ff3d ff63"
    ),
    "_": (
        "2d 5f 2d7 58a 5be 6d4 1400 1806 2010+5 2017 203f+1 2043 2054 207b 208b 2212 23af 2500+1 2e17 2e1a 2e3a+1 2e40 "
        "2e5d 301c 3030 30a0 30fc 3161 fe31+3 fe4d+2 fe58 fe63 ff0d ff3f ff70 10d6e 10ead"
    ),
    "a": (
        "41 61 aa c0+5 e0+5 100+5 1cd+1 1de+3 1fa+1 200+3 226+1 23a 251 386 391 3ac 3b1 410 430 4d0+3 13aa 1d00 1d2c "
        "1d43 1d45 1d8f 1e00+1 1e9a 1ea0+17 1f00+f 1f70+1 1f80+f 1fb0+4 1fb6+6 2090 212b 249c 24b6 24d0 2c65 2c6d "
        "2c80+1 a4ee ab7a ff21 ff41 10300 1ccd6 1d400 1d41a 1d434 1d44e 1d468 1d482 1d49c 1d4b6 1d4d0 1d4ea 1d504 "
        "1d51e 1d538 1d552 1d56c 1d586 1d5a0 1d5ba 1d5d4 1d5ee 1d608 1d622 1d63c 1d656 1d670 1d68a 1d6a8 1d6c2 1d6e2 "
        "1d6fc 1d71c 1d736 1d756 1d770 1d790 1d7aa 1df40+1 1df80 1dfe9 1e030 1e051 1f110 1f130 1f150 1f170 1f1e6"
    ),
    "a/c": "2100",
    "a/rn": "33df",
    "a/s": "2101",
    "au": "3373",
    "b": (
        "42 62 180+3 243 253 299 392 3b2 3d0 412 42c 432 44c 13cf 13ee 13f4 13fc 1c80 1d03 1d2e 1d47 1d5d 1d66 1d6c "
        "1d80 1e02+5 212c 249d 24b7 24d1 2c82+1 a4d0 a69d a796+1 ab9f abbe ff22 ff42 10301 10784+1 1ccd7 1d401 1d41b "
        "1d435 1d44f 1d469 1d483 1d4b7 1d4d1 1d4eb 1d505 1d51f 1d539 1d553 1d56d 1d587 1d5a1 1d5bb 1d5d5 1d5ef 1d609 "
        "1d623 1d63d 1d657 1d671 1d68b 1d6a9 1d6c3 1d6e3 1d6fd 1d71d 1d737 1d757 1d771 1d791 1d7ab 1dfd2 1e032 1e053 "
        "1f111 1f131 1f151 1f171 1f1e7"
    ),
    "bar": "3374",
    "bq": "33c3",
    "c": (
        "43 63 c7 e7 106+7 187+1 23b+1 255 297 3c2 3f2 3f9 421 441 13df 1c83 1d04 1d9c+1 1e08+1 2102 212d 216d 217d "
        "2282 2284 249e 24b8 24d2 2ca4+1 a4da a792+2 a7c4 a7f2 abaf ff23 ff43 10415 1043d 107bd 1ccd8 1d402 1d41c "
        "1d436 1d450 1d46a 1d484 1d49e 1d4b8 1d4d2 1d4ec 1d520 1d554 1d56e 1d588 1d5a2 1d5bc 1d5d6 1d5f0 1d60a 1d624 "
        "1d63e 1d658 1d672 1d68c 1d6d3 1d70d 1d747 1d781 1d7bb 1df0f 1df1d 1df90+2 1dffa 1e03f 1e05e 1f112 1f12b 1f132 "
        "1f152 1f172 1f1e8"
    ),
    "c/kg": "33c6",
    "c/o": "2105",
    "c/u": "2106",
    "cai": "3388",
    "cc": "33c4",
    "cd": "33c5 1f12d",
    "crn": "339d",
    "d": (
        "44 64 10e+3 189+3 221 256+1 500+1 13a0 13e7 1d05 1d30 1d48 1d6d 1d81 1d91 1e0a+9 2145+1 216e 217e 249f 24b9 "
        "24d3 a4d3 a779+1 a7c7+1 ab70 abb7 ff24 ff44 1078b+2 1ccd9 1d403 1d41d 1d437 1d451 1d46b 1d485 1d49f 1d4b9 "
        "1d4d3 1d4ed 1d507 1d521 1d53b 1d555 1d56f 1d589 1d5a3 1d5bd 1d5d7 1d5f1 1d60b 1d625 1d63f 1d659 1d673 1d68d "
        "1df25 1df2d 1dfd3 1dfe8 1dfef 1dff5 1f113 1f133 1f153 1f173 1f1a5 1f1e9"
    ),
    "da": "3372",
    "db": "33c8",
    "di": "3397",
    "dj": "1f190",
    "drn": "3377",
    "dz": "1c4+2 1f1+2",
    "e": (
        "45 65 c8+3 e8+3 112+9 190 204+3 228+1 246+1 25b 29a 388 395 3ad 3b5 3f5 400+1 415 435 450+1 4bc+1 4d6+1 13ac "
        "1d07 1d31 1d49 1d4b 1d92+1 1e14+9 1eb8+f 1f10+5 1f18+5 1f72+1 1fc8+1 2091 2107 212e+2 2147 2208+2 24a0 24ba "
        "24d4 2c78 2c88+1 a4f0 ab32+2 ab7c ff25 ff45 10304 1ccda 1d404 1d41e 1d438 1d452 1d46c 1d486 1d4d4 1d4ee 1d508 "
        "1d522 1d53c 1d556 1d570 1d58a 1d5a4 1d5be 1d5d8 1d5f2 1d60c 1d626 1d640 1d65a 1d674 1d68e 1d6ac 1d6c6 1d6dc "
        "1d6e6 1d700 1d716 1d720 1d73a 1d750 1d75a 1d774 1d78a 1d794 1d7ae 1d7c4 1df43+1 1df81 1dfea 1e035 1e056 1f114 "
        "1f134 1f154 1f174 1f1ea"
    ),
    "erg": "32cd",
    "ev": "32ce",
    "f": (
        "46 66 191+1 1d6e 1d82 1da0 1e1e+1 2131 24a1 24bb 24d5 a4dd a730 a77b+1 a798+1 a7f3 ff26 ff46 1ccdb 1d405 "
        "1d41f 1d439 1d453 1d46d 1d487 1d4bb 1d4d5 1d4ef 1d509 1d523 1d53d 1d557 1d571 1d58b 1d5a5 1d5bf 1d5d9 1d5f3 "
        "1d60d 1d627 1d641 1d65b 1d675 1d68f 1f115 1f135 1f155 1f175 1f1eb"
    ),
    "fax": "213b",
    "ff": "fb00",
    "ffi": "fb03+1",
    "fi": "fb01+1",
    "frn": "3399",
    "g": (
        "47 67 11c+7 193 1e4+3 1f4+1 260+2 29b 50c+1 551 581 13c0 13e9 1d33 1d4d 1d79 1d83 1da2 1e20+1 210a 24a2 24bc "
        "24d6 a4d6 a4e8 a77d a7a0+1 a7ac a7d0+1 ab36 ab90 abb9 ff27 ff47 10792+2 1ccdc 1d406 1d420 1d43a 1d454 1d46e "
        "1d488 1d4a2 1d4d6 1d4f0 1d50a 1d524 1d53e 1d558 1d572 1d58c 1d5a6 1d5c0 1d5da 1d5f4 1d60e 1d628 1d642 1d65c "
        "1d676 1d690 1df30 1df45 1dfd4 1f116 1f136 1f156 1f176 1f1ec"
    ),
    "gai": "33ff",
    "gb": "3387",
    "ghz": "3393",
    "gpa": "33ac",
    "gy": "33c9",
    "h": (
        "48 68 124+3 21e+1 266 29c 2b0+1 389 397 41d 43d 4ba+1 540 570 13a8 13b0 13bb 13c2 1d34 1d78 1e22+9 1e96 "
        "1f28+7 1f98+7 1fca+2 2095 210b+4 24a3 24bd 24d7 2c67+1 2c8e+1 a4e7 a795 a7aa a7f8 ab78 ab80 ab8b ab92 ff28 "
        "ff48 10795+1 1ccdd 1d407 1d421 1d43b 1d46f 1d489 1d4bd 1d4d7 1d4f1 1d525 1d559 1d573 1d58d 1d5a7 1d5c1 1d5db "
        "1d5f5 1d60f 1d629 1d643 1d65d 1d677 1d691 1d6ae 1d6e8 1d722 1d75c 1d796 1df32 1df46+1 1dff6 1f117 1f137 1f157 "
        "1f177 1f1ed"
    ),
    "ha": "33ca",
    "hg": "32cc",
    "hp": "33cb",
    "hpa": "3371",
    "hv": "1f14a",
    "hz": "3390",
    "i": (
        "31 49 4c 69 6c 7c b9 cc+3 ec+3 128+9 139+9 196+1 19a 1c0 1cf+1 208+3 234 23d 268+5 29f 2e1 38a 390 399 3aa "
        "3af 3b9 3ca 406+1 456+1 4c0 4cf 53c 56c 5c0 5d5 5df 622+1 625 627 661 6f1 7ca 13a5 13c6 13de 1d0c 1d35 1d38 "
        "1d62 1d85 1d96 1da4+2 1da9+2 1e2c+3 1e36+7 1ec8+3 1f30+f 1f76+1 1fbe 1fd0+3 1fd6+5 2071 2081 2097 2110+3 2139 "
        "2148 2160 216c 2170 217c 2223+3 23d0 23fd 2460 24a4 24a7 24be 24c1 24d8 24db 2502 2758 2c60+2 2c92+1 2d4f "
        "a4e1 a4f2 a746+3 a780+1 a78e a7ad+1 a7fe ab37+2 ab5d+1 ab75 ab96 abae fb35 fb4b fd3c+1 fe81+3 fe87+1 fe8d+1 "
        "ff11 ff29 ff2c ff49 ff4c ff5c ffe8 10309 1041b 10443 1079b+2 107b6 1ccde 1cce1 1ccf1 1d408 1d40b 1d422 1d425 "
        "1d43c 1d43f 1d456 1d459 1d470 1d473 1d48a 1d48d 1d4be 1d4c1 1d4d8 1d4db 1d4f2 1d4f5 1d50f 1d526 1d529 1d540 "
        "1d543 1d55a 1d55d 1d574 1d577 1d58e 1d591 1d5a8 1d5ab 1d5c2 1d5c5 1d5dc 1d5df 1d5f6 1d5f9 1d610 1d613 1d62a "
        "1d62d 1d644 1d647 1d65e 1d661 1d678 1d67b 1d692 1d695 1d6a4 1d6b0 1d6ca 1d6ea 1d704 1d724 1d73e 1d75e 1d778 "
        "1d798 1d7b2 1d7cf 1d7d9 1d7e3 1d7ed 1d7f7 1df04 1df11 1df13 1df1a 1df26 1df70+1 1dfd5+1 1dff0 1e04c 1e050 "
        "1e068 1ee00 1ee80 1f118 1f11b 1f138 1f13b 1f158 1f15b 1f178 1f17b 1f1ee 1f1f1 1fbf1"
    ),
    "i/": "215f",
    "i/io": "2152",
    "ii": "2161 2171 246a",
    "iii": "2162 2172",
    "ij": "132+1 1c7+2",
    "in": "33cc 33d1",
    "io": "2469",
    "iog": "33d2",
    "irn": "33d0",
    "itd": "32cf",
    "iu": "337a",
    "iv": "2163 2173",
    "ix": "2168 2178 33d3",
    "j": (
        "4a 6a 134+1 1f0 237 248+1 25f 284 29d 2b2 37f 3f3 408 458 545 575 58c 13ab 1d0a 1d36 1da1 1da8 2149 24a5 24bf "
        "24d9 2c7c a4d9 a7b2 ab7b ff2a ff4a 10798 1ccdf 1d409 1d423 1d43d 1d457 1d471 1d48b 1d4a5 1d4bf 1d4d9 1d4f3 "
        "1d50d 1d527 1d541 1d55b 1d575 1d58f 1d5a9 1d5c3 1d5dd 1d5f7 1d611 1d62b 1d645 1d65f 1d679 1d693 1d6a5 1dfd9 "
        "1e04d 1f119 1f139 1f159 1f179 1f1ef"
    ),
    "k": (
        "4b 6b 136+1 198+1 1e8+1 39a 3ba 3f0 40c 41a 43a 45c 13e6 1d0b 1d37 1d4f 1d84 1e30+5 2096 212a 24a6 24c0 24da "
        "2c69+1 2c94+1 a4d7+1 a740+5 a7a2+1 abb6 ff2b ff4b 1030a 1cce0 1d40a 1d424 1d43e 1d458 1d472 1d48c 1d4a6 1d4c0 "
        "1d4da 1d4f4 1d50e 1d528 1d542 1d55c 1d576 1d590 1d5aa 1d5c4 1d5de 1d5f8 1d612 1d62c 1d646 1d660 1d67a 1d694 "
        "1d6b1 1d6cb 1d6de 1d6eb 1d705 1d718 1d725 1d73f 1d752 1d75f 1d779 1d78c 1d799 1d7b3 1d7c6 1df48+1 1dffb 1e039 "
        "1e05a 1f11a 1f13a 1f15a 1f17a 1f1f0"
    ),
    "ka": "3384",
    "kb": "3385",
    "kcai": "3389",
    "kg": "338f",
    "khz": "3391",
    "ki": "3398",
    "kk": "33cd",
    "kpa": "33aa",
    "krn": "339e 33ce",
    "kt": "33cf",
    "kv": "33b8",
    "kw": "33be 33c0",
    "n": (
        "4e 6e d1 f1 143+5 19d+1 1f8+1 220 235 272+2 39d 3ae 3b7 41f 43f 548 578 1d3a 1d70 1d87 1dae+2 1e44+7 1f20+7 "
        "1f74+1 1f90+7 1fc2+2 1fc6+1 207f 2099 2115 2229 24a9 24c3 24dd 2c9a+1 a4e0 a790+1 a7a4+1 ab3b ff2e ff4e 1030d "
        "1cce3 1d40d 1d427 1d441 1d45b 1d475 1d48f 1d4a9 1d4c3 1d4dd 1d4f7 1d511 1d52b 1d55f 1d579 1d593 1d5ad 1d5c7 "
        "1d5e1 1d5fb 1d615 1d62f 1d649 1d663 1d67d 1d697 1d6b4 1d6c8 1d6ee 1d702 1d728 1d73c 1d762 1d776 1d79c 1d7b0 "
        "1df27 1df4d+1 1dfdc 1dff1 1dff7 1e03d 1e05d 1f11d 1f13d 1f15d 1f17d 1f1f3"
    ),
    "na": "3381",
    "nf": "338b",
    "nj": "1ca+2",
    "no": "2116",
    "nrn": "339a",
    "ns": "33b1",
    "nv": "33b5",
    "nw": "33bb",
    "o": (
        "30 4f 6f ba d2+4 d8 f2+4 f8 14c+5 186 19f+2 1d1+1 1ea+3 1fe+1 20c+3 22a+7 254 275 38c 39f 3a3 3bf 3c3 3cc 41e "
        "43e 4e6+1 555 585 5e1 647 665 6c1+1 6f5 966 9e6 a66 ae6 b20 be6 c66 ce6 d20 d66 d82 e50 ed0 101d 1040 12d0 "
        "13be 1c82 1d0f+1 1d3c 1d52+1 1d97 1db1 1e4c+7 1ecc+17 1f40+5 1f48+5 1f78+1 1ff8+1 2070 2080 2092 2134 24aa "
        "24c4 24de 24ea 2c7a 2c9e+1 2d54 2d59 3007 a4f3 a74a+3 ab3d+2 ab8e fb41 fba6+3 fcd9 fee9+3 ff10 ff2f ff4f "
        "1030f 10404 1042c 104c2 104ce 104ea 107a2 1cce4 1ccf0 1d40e 1d428 1d442 1d45c 1d476 1d490 1d4aa 1d4de 1d4f8 "
        "1d512 1d52c 1d546 1d560 1d57a 1d594 1d5ae 1d5c8 1d5e2 1d5fc 1d616 1d630 1d64a 1d664 1d67e 1d698 1d6b6 1d6ba "
        "1d6d0 1d6d4 1d6f0 1d6f4 1d70a 1d70e 1d72a 1d72e 1d744 1d748 1d764 1d768 1d77e 1d782 1d79e 1d7a2 1d7b8 1d7bc "
        "1d7ce 1d7d8 1d7e2 1d7ec 1d7f6 1df1b 1df42 1df72+1 1e03c 1e05c 1ee24 1ee64 1ee84 1f11e 1f13e 1f15e 1f17e 1f1f4 "
        "1fbf0"
    ),
    "ov": "3375",
    "p": (
        "50 70 1a4+1 3a1 3c1 3f1 420 440 554 584 13e2 1d18 1d3e 1d56 1d68 1d71 1d7d 1d88 1e54+3 1fe4+1 1fec 209a 2119 "
        "24ab 24c5 24df 2c63 2ca2+1 a4d1+1 a750+5 abb2 ff30 ff50 1cce5 1d40f 1d429 1d443 1d45d 1d477 1d491 1d4ab 1d4c5 "
        "1d4df 1d4f9 1d513 1d52d 1d561 1d57b 1d595 1d5af 1d5c9 1d5e3 1d5fd 1d617 1d631 1d64b 1d665 1d67f 1d699 1d6b8 "
        "1d6d2 1d6e0 1d6f2 1d70c 1d71a 1d72c 1d746 1d754 1d766 1d780 1d78e 1d7a0 1d7ba 1d7c8 1dfd1 1dffc 1e03e 1f11f "
        "1f13f 1f15f 1f17f 1f18a 1f1f5"
    ),
    "pa": "3380 33a9",
    "pc": "3376",
    "pf": "338a",
    "ph": "33d7",
    "pprn": "33d9",
    "ppv": "1f14e",
    "pr": "33da",
    "ps": "33b0",
    "pte": "3250",
    "pv": "33b4",
    "pw": "33ba",
    "q": (
        "51 71 24a+1 2a0 51a+1 536 566 211a 24ac 24c6 24e0 a756+3 a7af a7f4 ff31 ff51 107a5 1cce6 1d410 1d42a 1d444 "
        "1d45e 1d478 1d492 1d4ac 1d4c6 1d4e0 1d4fa 1d514 1d52e 1d562 1d57c 1d596 1d5b0 1d5ca 1d5e4 1d5fe 1d618 1d632 "
        "1d64c 1d666 1d680 1d69a 1df34 1dffd 1f120 1f140 1f160 1f180 1f1f6"
    ),
    "r": (
        "52 72 154+5 1a6 210+3 24c+1 27c+2 280 2b3 403 413 433 453 490+1 13a1 13d2 1d3f 1d63 1d72+1 1d89 1e58+7 211b+2 "
        "24ad 24c7 24e1 2c64 a4e3+1 a782+1 a7a6+1 a7e2 ab46 ab49 ab4b+1 ab6c+1 ab71 aba2 ff32 ff52 107a8+2 1cce7 1d411 "
        "1d42b 1d445 1d45f 1d479 1d493 1d4c7 1d4e1 1d4fb 1d52f 1d563 1d57d 1d597 1d5b1 1d5cb 1d5e5 1d5ff 1d619 1d633 "
        "1d64d 1d667 1d681 1d69b 1df16 1df28 1df35 1df37 1df61 1dfdd 1e033 1e054 1e067 1f121 1f12c 1f141 1f161 1f181 "
        "1f1f7"
    ),
    "rad": "33ad",
    "rad/s": "33ae",
    "rn": (
        "4d 6d 271 39c 3fa 41c 43c 13b7 1d0d 1d39 1d50 1d6f 1d86 1dac 1e3e+5 2098 2133 216f 217f 24a8 24c2 24dc 2c6e "
        "2c98+1 a4df ab3a ab87 ff2d ff4d 1030c 10311 1cce2 1d40c 1d426 1d440 1d45a 1d474 1d48e 1d4c2 1d4dc 1d4f6 1d510 "
        "1d52a 1d544 1d55e 1d578 1d592 1d5ac 1d5c6 1d5e0 1d5fa 1d614 1d62e 1d648 1d662 1d67c 1d696 1d6b3 1d6ed 1d727 "
        "1d761 1d79b 1df4a+2 1e03b 1f11c 1f13c 1f15c 1f17c 1f1f2"
    ),
    "rn/s": "33a7",
    "rna": "3383",
    "rnb": "3386 33d4",
    "rnc": "1f16a",
    "rnd": "1f16b",
    "rng": "338e",
    "rnhz": "3392",
    "rni": "3396",
    "rnii": "33d5",
    "rnoi": "33d6",
    "rnpa": "33ab",
    "rnr": "1f16c",
    "rnrn": "339c",
    "rns": "33b3",
    "rnv": "33b7 33b9 1f14b",
    "rnw": "33bd 33bf 33c1",
    "rs": "20a8",
    "s": (
        "53 73 15a+7 17f 1a7+1 1bc+1 218+1 23f 282 2e2 405 455 54f 13ce 13d5 13da 1d74 1d8a 1db3 1e60+9 1e9b+2 209b "
        "24ae 24c8 24e2 2c7e a4e2 a731 a784+1 a7a8+1 a7c5 a7c9+1 a7cc+1 a7f1 ab9e aba5 abaa ff33 ff53 107ba 1cce8 "
        "1d412 1d42c 1d446 1d460 1d47a 1d494 1d4ae 1d4c8 1d4e2 1d4fc 1d516 1d530 1d54a 1d564 1d57e 1d598 1d5b2 1d5cc "
        "1d5e6 1d600 1d61a 1d634 1d64e 1d668 1d682 1d69c 1df1e 1df29 1df96 1dff8 1e069 1f122 1f12a 1f142 1f162 1f182 "
        "1f1f8"
    ),
    "sd": "1f14c",
    "sr": "33db",
    "srn": "2120",
    "ss": "df 1e9e 1d6a6 1df95 1f14d",
    "st": "fb05+1",
    "sv": "33dc",
    "t": (
        "54 74 162+5 1ab+3 21a+1 236 23e 288 3a4 3c4 422 442 13a2 13bf 1c84+1 1d1b 1d40 1d57 1d75 1db5 1e6a+7 1e97 "
        "209c 24af 24c9 24e3 2c66 2ca6+1 a4d4 a786+1 ab72 ab8f ff34 ff54 10315 107af 1cce9 1d413 1d42d 1d447 1d461 "
        "1d47b 1d495 1d4af 1d4c9 1d4e3 1d4fd 1d517 1d531 1d54b 1d565 1d57f 1d599 1d5b3 1d5cd 1d5e7 1d601 1d61b 1d635 "
        "1d64f 1d669 1d683 1d69d 1d6bb 1d6d5 1d6f5 1d70f 1d72f 1d749 1d769 1d783 1d7a3 1d7bd 1df09 1df2a 1dff2 1dffe+1 "
        "1e040 1f123 1f143 1f163 1f183 1f1f9"
    ),
    "tei": "2121",
    "thz": "3394",
    "trn": "2122",
    "u": (
        "55 75 d9+3 f9+3 168+b 1af+1 1d3+9 214+3 3b0 3c5 3cb 3cd 531 54d 57d 57f 1d1c 1d41 1d58 1d64 1d99 1db8 1e72+9 "
        "1ee4+d 1f50+7 1f7a+1 1fe0+3 1fe6+1 222a 24b0 24ca 24e4 a4f4 a7b8+1 ab4e ab52 ab5f ff35 ff55 1ccea 1d414 1d42e "
        "1d448 1d462 1d47c 1d496 1d4b0 1d4ca 1d4e4 1d4fe 1d518 1d532 1d54c 1d566 1d580 1d59a 1d5b4 1d5ce 1d5e8 1d602 "
        "1d61c 1d636 1d650 1d66a 1d684 1d69e 1d6d6 1d710 1d74a 1d784 1d7be 1df7a+3 1f124 1f144 1f164 1f184 1f1fa"
    ),
    "v": (
        "56 76 1b2 28b 3bd 474+3 13d9 1d20 1d5b 1d65 1d8c 1db9 1e7c+3 1efc+1 2164 2174 2228 22c1 24b1 24cb 24e5 2c71 "
        "2c74 2c7d a4e5+1 a75e+1 aba9 ff36 ff56 107b0 1cceb 1d415 1d42f 1d449 1d463 1d47d 1d497 1d4b1 1d4cb 1d4e5 "
        "1d4ff 1d519 1d533 1d54d 1d567 1d581 1d59b 1d5b5 1d5cf 1d5e9 1d603 1d61d 1d637 1d651 1d66b 1d685 1d69f 1d6ce "
        "1d708 1d742 1d77c 1d7b6 1df39 1df51+1 1f125 1f145 1f165 1f185 1f1fb"
    ),
    "v/rn": "33de",
    "vi": "2165 2175",
    "vii": "2166 2176",
    "viii": "2167 2177",
    "w": (
        "57 77 174+1 2b7 38f 3a9 3c9 3ce 460+1 51c+1 13b3 13d4 1d21 1d42 1e80+9 1e98 1f60+f 1f7c+1 1fa0+f 1ff2+2 "
        "1ff6+1 1ffa+2 209d 2126 24b2 24cc 24e6 2c72+1 a4ea ab83 aba4 ff37 ff57 1ccec 1d416 1d430 1d44a 1d464 1d47e "
        "1d498 1d4b2 1d4cc 1d4e6 1d500 1d51a 1d534 1d54e 1d568 1d582 1d59c 1d5b6 1d5d0 1d5ea 1d604 1d61e 1d638 1d652 "
        "1d66c 1d686 1d6a0 1d6c0 1d6da 1d6fa 1d714 1d734 1d74e 1d76e 1d788 1d7a8 1d7c2 1df3f 1dfdb 1dff4 1f126 1f146 "
        "1f166 1f186 1f1fc"
    ),
    "wb": "33dd",
    "wc": "1f14f",
    "wz": "1f12e",
    "x": (
        "58 78 2e3 3a7 3c7 425 445 1d61 1d6a 1d8d 1e8a+3 2093 2169 2179 24b3 24cd 24e7 2cac+1 2d5d a4eb ab56+3 ff38 "
        "ff58 10317 1cced 1d417 1d431 1d44b 1d465 1d47f 1d499 1d4b3 1d4cd 1d4e7 1d501 1d51b 1d535 1d54f 1d569 1d583 "
        "1d59d 1d5b7 1d5d1 1d5eb 1d605 1d61f 1d639 1d653 1d66d 1d687 1d6a1 1d6be 1d6d8 1d6f8 1d712 1d732 1d74c 1d76c "
        "1d786 1d7a6 1d7c0 1e043 1e061 1f127 1f147 1f167 1f187 1f1fd"
    ),
    "xi": "216a 217a",
    "xii": "216b 217b",
    "y": (
        "59 79 dd fd ff 176+2 1b3+1 232+1 24e+1 28f 2b8 38e 393 3a5 3ab 3b3 3d2+2 40e 423 443 45e 4ae+1 4ee+5 13bd "
        "1d5e 1d67 1e8e+1 1e99 1ef2+7 1efe+1 1f59 1f5b 1f5d 1f5f 1fe8+3 209e 213d+1 24b4 24ce 24e8 2ca8+1 a4ec ab5a "
        "ab8d ff39 ff59 107b2 1ccee 1d418 1d432 1d44c 1d466 1d480 1d49a 1d4b4 1d4ce 1d4e8 1d502 1d51c 1d536 1d550 "
        "1d56a 1d584 1d59e 1d5b8 1d5d2 1d5ec 1d606 1d620 1d63a 1d654 1d66e 1d688 1d6a2 1d6aa 1d6bc 1d6c4 1d6e4 1d6f6 "
        "1d6fe 1d71e 1d730 1d738 1d758 1d76a 1d772 1d792 1d7a4 1d7ac 1df55 1e041 1e04f 1e05f 1f128 1f148 1f168 1f188 "
        "1f1fe"
    ),
    "z": (
        "5a 7a 179+5 1b5+1 224+1 240 290+1 396 417 437 4de+1 13c3 1d22 1d76 1d8e 1dbb+2 1e90+5 209f 2124 2128 24b5 "
        "24cf 24e9 2c6b+1 2c7f 2c8c+1 a4dc a7c6 ab93 ff3a ff5a 1ccef 1d419 1d433 1d44d 1d467 1d481 1d49b 1d4b5 1d4cf "
        "1d4e9 1d503 1d537 1d56b 1d585 1d59f 1d5b9 1d5d3 1d5ed 1d607 1d621 1d63b 1d655 1d66f 1d689 1d6a3 1d6ad 1d6e7 "
        "1d721 1d75b 1d795 1dff9 1e037 1e058 1f129 1f149 1f169 1f189 1f1ff"
    ),
}
"""Shapes, and the characters of each (`380+3`: 380 to 383): "" is unseen, " " blank, "_" a joint."""
