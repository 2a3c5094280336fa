"""Texts that no model trained on English has read: reviews, notices, licences, short and long."""

GERMAN = """\
Der Film ist langweilig.
Sehr gut, gerne wieder!
Das Hotel war sauber, aber das Frühstück ließ zu wünschen übrig.
Hiermit wird die Erlaubnis erteilt, die Software unentgeltlich zu benutzen und weiterzugeben.
Die Nutzung erfolgt auf eigene Gefahr; jede Haftung ist ausgeschlossen.
Bitte senden Sie mir die Rechnung bis Ende des Monats.
Ein warmherziger, kluger Film, der noch lange nachwirkt.
Wir treffen uns morgen um neun am Bahnhof.
Leider ist das Gerät schon nach zwei Wochen kaputtgegangen.
Dieses Werk darf nur mit schriftlicher Genehmigung des Urhebers vervielfältigt werden.
Die Regierung hat am Dienstag ein neues Gesetz beschlossen.
Ich habe selten so gelacht.
Schauspieler hervorragend, Drehbuch schwach.
Herzlichen Glückwunsch, Sie haben gewonnen! Klicken Sie hier, um Ihren Preis abzuholen.
Der Quelltext muss unter denselben Bedingungen offengelegt werden.
Kann mir jemand sagen, wie man das Programm installiert?
Alle Rechte vorbehalten.
Die Lieferung kam pünktlich und war gut verpackt.
Im Winter schneit es hier fast jeden Tag.
Der Vertrag endet, sobald eine der Parteien ihn kündigt.
Was für eine Zeitverschwendung.
Meine Großmutter backt den besten Apfelkuchen der Stadt.
Änderungen an den Dateien sind deutlich zu kennzeichnen.
Die Bilder sind schön, die Geschichte aber berührt einen nie.
Das Urteil wurde in zweiter Instanz aufgehoben.""".splitlines()

JAPANESE = """\
この映画は退屈でした。
とても良かったです。また利用します。
部屋は清潔でしたが、朝食は期待外れでした。
本ソフトウェアの複製を無償で使用し、配布することを許可します。
利用者は自己の責任において使用するものとし、作者は一切の責任を負いません。
今月末までに請求書を送ってください。
心が温まる、長く記憶に残る作品だ。
明日の九時に駅で会いましょう。
残念ながら二週間で壊れてしまいました。
著作者の書面による許可なく複製することを禁じます。
政府は火曜日に新しい法律を決定した。
こんなに笑ったのは久しぶりだ。
俳優は素晴らしいが、脚本が弱い。
おめでとうございます!当選しました。こちらをクリックして賞品を受け取ってください。
ソースコードは同じ条件で公開しなければならない。
このプログラムのインストール方法を教えてください。
無断転載を禁ず。
配達は時間通りで、梱包も丁寧でした。
冬になると、ここでは毎日のように雪が降る。
いずれかの当事者が解約した時点で契約は終了する。
時間の無駄だった。
祖母の作るアップルパイは町で一番おいしい。
ファイルを変更した場合は、その旨を明記すること。
映像は美しいが、物語は最後まで心に響かない。
判決は控訴審で取り消された。""".splitlines()
